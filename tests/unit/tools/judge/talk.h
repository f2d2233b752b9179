// A conversation of two queue pairs, as frames in memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "roce/frame.h"
#include "tests/unit/tools/judge/captured.h"

namespace roci::tools::judge {

// A conversation of two queue pairs, 10.0.0.1 and 10.0.0.2, or fd01:: and fd02::.
class Talk {
 public:
  explicit Talk(bool is_ipv6 = false, uint16_t vlan = 0) : is_ipv6_(is_ipv6), vlan_(vlan) {}

  Talk& At(int64_t time_ns) {
    time_ns_ = time_ns;
    return *this;
  }
  // From the client to the server.
  Captured& Request(roce::Opcode opcode, uint32_t psn, uint32_t bytes = 0,
                    bool ack_request = true) {
    roce::TxPacket tx;
    tx.opcode = opcode;
    tx.psn = roce::Psn(psn);
    tx.dest_qpn = roce::Qpn(server_qpn_);
    tx.ack_request = ack_request;
    const bool is_read = opcode == roce::Opcode::kRcReadRequest;
    tx.payload_length = is_read ? 0 : bytes;
    tx.ext.reth = {0x1000, roce::Key(7), bytes};
    return Add(true, tx);
  }
  Captured& Response(roce::Opcode opcode, uint32_t psn, uint8_t syndrome = 0x1F, uint32_t msn = 0,
                     uint32_t bytes = 0) {
    roce::TxPacket tx;
    tx.opcode = opcode;
    tx.psn = roce::Psn(psn);
    tx.dest_qpn = roce::Qpn(client_qpn_);
    tx.payload_length = bytes;
    tx.ext.aeth = {syndrome, roce::Msn(msn)};
    return Add(false, tx);
  }
  Captured& SelectiveNak(uint32_t psn, const roce::MissingEth& missing, uint32_t msn) {
    roce::TxPacket tx;
    tx.opcode = roce::Opcode::kRcSelectiveNak;
    tx.psn = roce::Psn(psn);
    tx.dest_qpn = roce::Qpn(client_qpn_);
    tx.ext.aeth = roce::Aeth::Nak(roce::Msn(msn), roce::NakCode::kPsnSequenceError);
    tx.ext.missing = missing;
    return Add(false, tx);
  }
  Captured& Ack(uint32_t psn, uint32_t msn) {
    return Response(roce::Opcode::kRcAcknowledge, psn, 0x1F, msn);
  }
  Captured& Cnp() {
    roce::TxPacket tx;
    tx.opcode = roce::Opcode::kCnp;
    tx.becn = true;
    tx.dest_qpn = roce::Qpn(client_qpn_);
    return Add(false, tx);
  }
  void UseQueuePairs(uint32_t client, uint32_t server) {
    client_qpn_ = client;
    server_qpn_ = server;
  }
  void UseEcn(uint8_t ecn) { ecn_ = ecn; }
  Frames& frames() { return frames_; }

 private:
  Captured& Add(bool from_client, const roce::TxPacket& tx);

  bool is_ipv6_;
  uint16_t vlan_;
  uint8_t ecn_ = 0;
  uint32_t client_qpn_ = 0x11, server_qpn_ = 0x22;
  int64_t time_ns_ = 1'000'000'000;
  Frames frames_;
};

// NamesOf a judge of the frames.
std::vector<std::string> NamesIn(const Frames& frames);

}  // namespace roci::tools::judge
