// Stateless tables and checks of the requester: opcodes of request packets, limits of requests, the
// status for a NAK.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "roce/counters.h"
#include "roce/headers.h"
#include "roce/opcode.h"
#include "roce/packet.h"
#include "roce/qp_attributes.h"
#include "roce/types.h"
#include "roce/work.h"

namespace roci::roce {

// How a work request is sent and answered.
enum class WorkClass : uint8_t {
  kSegmented,  // request packets carry the data: SEND, WRITE
  kRead,
  kAtomic,
  kConfirmed,  // one packet, answered by an empty READ response: FLUSH, ATOMIC WRITE
  kLocal,      // no packet: bind, local invalidate, register
};

struct WorkInfo {
  WorkClass work_class;
  CompletionOpcode completion;
  // RC opcodes; WithTransport gives the others. READ and atomics: `only`.
  Opcode first, middle, last, only;
  bool has_reth, has_immediate, has_invalidate;
};

// Indexed by WorkOpcode.
inline constexpr size_t kWorkOpcodeCount = 13;
extern const std::array<WorkInfo, kWorkOpcodeCount> kWorkTable;

// `opcode` comes from gate 2, which accepts enumerators only.
inline const WorkInfo& InfoOf(WorkOpcode opcode) { return kWorkTable[static_cast<size_t>(opcode)]; }

// Requests with a response of their own: max_rd_atomic limits them, a fence waits for them.
constexpr bool IsAnswered(WorkClass work_class) {
  return work_class == WorkClass::kRead || work_class == WorkClass::kAtomic ||
         work_class == WorkClass::kConfirmed;
}

// Requests that take a receive of the peer, and so a credit (IBTA vol 1, 9.7.7.2).
constexpr uint32_t ReceivesOf(WorkOpcode opcode) {
  constexpr auto kBitOf = [](WorkOpcode taking) { return 1u << static_cast<uint32_t>(taking); };
  constexpr uint32_t kTaking = kBitOf(WorkOpcode::kSend) | kBitOf(WorkOpcode::kSendWithImm) |
                               kBitOf(WorkOpcode::kSendWithInvalidate) |
                               kBitOf(WorkOpcode::kRdmaWriteWithImm);
  return kTaking >> static_cast<uint32_t>(opcode) & 1;
}
constexpr bool TakesReceive(WorkOpcode opcode) { return ReceivesOf(opcode) != 0; }

// The longest time that a request waits for new credits before it is sent without one.
inline constexpr uint64_t kLongestCreditWaitNs = 64'000'000;

// A FLUSH for persistence. Until it is done a responder accepts no later atomic (IBTA vol 1, A19),
// so sending one would cost a NAK and a retry.
constexpr bool IsDurableFlush(const SendWqe& wqe) {
  return wqe.opcode == WorkOpcode::kFlush && (wqe.flush.placement_type & Feth::kPersistence) != 0;
}
constexpr bool FollowsDurableFlush(const SendWqe& wqe) {
  return wqe.opcode == WorkOpcode::kCompareSwap || wqe.opcode == WorkOpcode::kFetchAdd ||
         wqe.opcode == WorkOpcode::kAtomicWrite;
}

// kSuccess, or the status of a request above a limit of its queue pair (IBTA vol 1, 10.8.3.3 and
// 11.6.2): kLocalQpOperationError, kLocalLengthError. Gate 2 has checked what follows from opcode
// and type (FetchResult::kOk).
CompletionStatus CheckSendWqe(const SendWqe& wqe, QpType type, uint32_t mtu_bytes,
                              uint32_t max_message_bytes, uint32_t max_rd_atomic);

// rnr_retry: no limit.
inline constexpr uint8_t kRetryForEver = 7;

// A responder treats the half of the PSN space before the expected PSN as duplicates.
inline constexpr uint32_t kMaxPsnsInFlight = 1u << 23;

constexpr Position PositionOf(uint32_t index, uint32_t packets) {
  if (index + 1 == packets) return index == 0 ? Position::kOnly : Position::kLast;
  return index == 0 ? Position::kFirst : Position::kMiddle;
}

constexpr Transport TransportOf(QpType type) {
  switch (type) {
    case QpType::kUc:
      return Transport::kUc;
    case QpType::kUd:
      return Transport::kUd;
    case QpType::kXrcSend:
    case QpType::kXrcRecv:
      return Transport::kXrc;
    default:
      return Transport::kRc;
  }
}

// Completion status of a request with this NAK (IBTA vol 1, 9.9.2; codes other than 0). Reserved
// codes: kBadResponse.
CompletionStatus StatusOfNak(uint8_t nak_code);

// Whether a response is a NAK that fails its request (IBTA vol 1, 9.9.2).
inline bool IsFatal(const Packet& packet) {
  return packet.info->operation == Operation::kAcknowledge &&
         packet.ext.aeth.kind() == AethKind::kNak &&
         packet.ext.aeth.value() != static_cast<uint8_t>(NakCode::kPsnSequenceError);
}

// The PSN before which all responses must have come before this one is handled: that of a response
// or NAK; an ACK covers its own PSN as well.
inline Psn ResponseEnd(const Packet& packet) {
  const bool is_ack =
      packet.info->operation == Operation::kAcknowledge && packet.ext.aeth.kind() == AethKind::kAck;
  return packet.psn + (is_ack ? 1 : 0);
}

// The counter of a request that completes with `status`.
QpCounter CounterOfFailure(CompletionStatus status);

// Whether a packet is valid as READ response number `index`: its length must be the rest of the
// message, at most one path MTU. A retried READ restarts with FIRST or ONLY at any index.
// `in_parts`: it may ask for a part of the READ, which ends with LAST or ONLY.
bool ReadResponseFits(Position position, uint32_t payload_bytes, uint32_t index, uint32_t length,
                      uint8_t mtu_shift, bool in_parts = false);

// Local ACK timeout in nanoseconds: kNever for 0 (IBTA vol 1, 9.7.6.1.3).
constexpr uint64_t AckTimeoutNs(uint8_t code) { return code == 0 ? kNever : TimeoutNs(code); }

}  // namespace roci::roce
