// State that requester and responder of a queue pair share: configuration, attributes, QP state.
#pragma once

#include <bit>
#include <cstdint>

#include "roce/qp_attributes.h"
#include "roce/types.h"
#include "roce/work.h"

namespace roci::roce {

struct QpLimits {
  // PSNs in flight before a packet is sent; a sent READ counts with all its PSNs. 2 .. 2^20.
  uint32_t window_packets = 128;
  // Packets between two ACK requests of a longer message. 1 .. window_packets.
  uint16_t ack_every_packets = 32;
  uint8_t max_rd_atomic = 16;
  // At most the number of ResponderResources handed over.
  uint8_t max_dest_rd_atomic = 16;
  uint32_t max_message_bytes = kMaxMessageBytes;  // raw packet: of a frame without FCS
  PathMtu max_path_mtu = PathMtu::k4096;          // UD: the path MTU
  uint16_t pkey_table_length = 1;
  // Time until a missing packet counts as lost. Needs a ReorderState. 0: at once, so that every gap
  // costs a go-back-N.
  uint32_t reorder_wait_ns = 0;
  // RC with a ReorderState: only missing packets are requested again (selective
  // repeat). It falls back to go-back-N if the peer does not answer.
  bool selective_repeat = false;

  // Limits of the attributes that a program may set.
  QpAttributeLimits ForAttributes() const {
    return {.pkey_table_length = pkey_table_length,
            .max_rd_atomic = max_rd_atomic,
            .max_dest_rd_atomic = max_dest_rd_atomic,
            .max_path_mtu = max_path_mtu};
  }
};

struct QpConfig {
  QpType type = QpType::kRc;
  Qpn qpn;
  bool sq_sig_all = false;
  // FetchRecv takes from a shared receive queue: nothing is flushed from it in ERR, and "last WQE
  // reached" is raised instead (IBTA vol 1, 10.2.9).
  bool uses_srq = false;
  QpLimits limits;
};

struct ReorderState;

struct QpContext {
  QpConfig config;
  QpAttributes attributes;
  // log2 of the path MTU, 8 .. 12, for the hot path.
  uint8_t mtu_shift = 10;
  // Set by requester or responder when a fault moves the QP to ERR; Qp acts on it before it
  // returns.
  bool error_pending = false;
  // The same for SQE: a send queue of an unreliable QP failed (IBTA vol 1, 10.3.1.6).
  bool send_error_pending = false;
  // Congestion control is on: timeouts lengthen with the peer's delay, and the window shrinks after
  // a loss.
  bool adapts = false;
  // Selective repeat; then `reorder` is not null.
  bool selective = false;
  // Early packets are kept (EarlyAction::kKeep); null: they are dropped.
  ReorderState* reorder = nullptr;

  QpState state() const { return attributes.state; }
  uint32_t mtu_bytes() const { return 1u << mtu_shift; }
  // Whether ACKs say how many receives are posted (IBTA vol 1, 9.7.7.2): of a shared receive queue,
  // no queue pair knows what it will get.
  bool GivesCredits() const { return config.type == QpType::kRc && !config.uses_srq; }
  bool IsReliable() const { return roce::IsReliable(config.type); }
  // Whether a failed send request leads to SQE; otherwise to ERR.
  bool HasSendErrorState() const {
    return config.type == QpType::kUc || config.type == QpType::kUd;
  }
};

// Payloads of accepted packets could not be placed: of requests (`psn`: the first of them), of
// responses, or both. `*_reported`: by an error completion.
struct PlaceFault {
  bool of_request;
  bool of_response;
  bool recv_reported;
  bool send_reported;
  Psn psn;
};

// Steps from `from` forward to `to`, 0 .. 2^24 - 1.
constexpr uint32_t StepsForward(Psn from, Psn to) { return (to.value() - from.value()) & kMask24; }

// PSNs that a message of `length` bytes takes (IBTA vol 1, 9.7.2): one if it is empty.
constexpr uint32_t PacketsOf(uint32_t length, uint8_t mtu_shift) {
  return length == 0 ? 1 : ((length - 1) >> mtu_shift) + 1;
}

// Immediate data between verbs (network byte order) and ImmDt (host byte order), either way.
constexpr uint32_t SwapNetworkOrder(uint32_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap32(value) : value;
}

}  // namespace roci::roce
