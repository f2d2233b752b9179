// The request packets that a send queue must produce: its posted work requests in the PSN space
// (IBTA vol 1, 9.7.2), computed only from the posted requests.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "roce/packet.h"
#include "roce/work.h"
#include "tests/sim/connection.h"
#include "tests/sim/sim_host.h"

namespace roci::sim {

// The distance of a PSN from the connection's first PSN. Positions do not wrap.
using Position = int64_t;

// How many receives the credit codes 0 to 30 of an ACK stand for (9.7.5.1.3).
inline constexpr std::array<uint32_t, 31> kCreditCounts = {
    0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
    256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};
inline constexpr uint8_t kNoCreditInformation = 31;

struct ExpectedRequest {
  Position begin, end;  // [begin, end); equal: executed on this side, without a packet
  bool is_read;         // occupies the PSNs of its responses
  bool is_atomic;
  bool is_answered;  // gets a response of its own: READ, atomics, FLUSH, ATOMIC WRITE
  bool fence;
};

class ExpectedRequests {
 public:
  // Expects the requests that `host`, the host of node `node`, posts.
  ExpectedRequests(const Connection& connection, int node, const SimHost* host);

  // The position of `psn` nearest to `reference`.
  Position Locate(roce::Psn psn, Position reference) const;
  // The request at `position`; null: none was posted. Valid until the next call.
  const ExpectedRequest* Find(Position position);
  const ExpectedRequest& At(size_t slot) { return Extend(), requests_[slot]; }
  size_t SlotOf(const ExpectedRequest* request) const {
    return static_cast<size_t>(request - requests_.data());
  }
  // The number of messages that are complete before `position`: the MSN there (9.7.7.1).
  uint32_t MessagesBefore(Position position);
  // The number of receives that the first `messages` messages take.
  uint32_t ReceivesOf(uint32_t messages);
  // Whether the request takes a receive.
  bool TakesCredit(const ExpectedRequest& request) const;
  // Compares the packet at `position` with its `request`. `in_parts`: a READ may ask for a part of
  // the response. Returns what is wrong, if anything.
  std::optional<std::string> Compare(const ExpectedRequest& request, Position position,
                                     const roce::Packet& packet, bool in_parts) const;
  // The end of the responses that a READ packet at `position` asks for.
  Position EndOfRead(Position position, const roce::Packet& packet) const {
    const uint32_t length = packet.ext.reth.length;
    return position + (length == 0 ? 1 : (length + mtu_bytes_ - 1) / mtu_bytes_);
  }
  uint32_t mtu_bytes() const { return mtu_bytes_; }
  // Payload bytes of the READ response at `position`.
  uint32_t ResponseBytes(const ExpectedRequest& request, Position position) const;
  // Whether the packet at `position` consumes a receive.
  bool TakesReceive(const ExpectedRequest& request, Position position) const;

 private:
  void Extend();
  uint32_t LengthOf(const roce::SendWqe& wqe, uint32_t skipped, const roce::Packet& packet,
                    bool in_parts) const;
  const roce::SendWqe& WqeOf(const ExpectedRequest& request) const;

  const SimHost* host_;
  uint32_t first_psn_;
  uint32_t mtu_bytes_;
  uint8_t transport_bits_;
  std::vector<ExpectedRequest> requests_;  // indexed by slot
  std::vector<Position> message_ends_;     // of the requests that have packets
  std::vector<uint32_t> receives_ = {0};   // indexed by messages
};

}  // namespace roci::sim
