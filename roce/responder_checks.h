// Pure checks of the responder, in the order of IBTA vol 1, 9.7.4.1: PSN, opcode sequence, opcode,
// then (with the host) resources, R_Key, lengths; and the table of faults and their consequences.
#pragma once

#include <cstdint>

#include "memory/types.h"
#include "roce/counters.h"
#include "roce/drop_reason.h"
#include "roce/headers.h"
#include "roce/opcode.h"
#include "roce/qp_attributes.h"
#include "roce/types.h"
#include "roce/work.h"

namespace roci::roce {

enum class PsnClass : uint8_t { kExpected, kDuplicate, kGap };

// IBTA vol 1, 9.7.4.1: the half of the PSN space before the expected PSN are duplicates.
constexpr PsnClass ClassifyPsn(Psn expected, Psn psn) {
  const int32_t distance = Distance(expected, psn);
  if (distance == 0) return PsnClass::kExpected;
  return distance < 0 ? PsnClass::kDuplicate : PsnClass::kGap;
}

// The message in progress.
enum class InMessage : uint8_t { kNone, kSend, kWrite };
struct MessageState {
  InMessage kind = InMessage::kNone;
  uint32_t received = 0;  // bytes placed
  // WRITE only: the RETH of the first packet.
  uint32_t length = 0;
  Key rkey;
  uint64_t va = 0;
};

// Why a request in sequence is not executed.
enum class RequestFault : uint8_t {
  kNone,
  kNoReceive,          // RNR: no receive posted
  kOpcodeSequence,     // FIRST inside a message, MIDDLE outside of one, ...
  kUnsupportedOpcode,  // not enabled on this QP
  kTooManyReads,       // more READs and atomics than max_dest_rd_atomic
  kMisalignedAtomic,
  kPayloadLength,   // wrong for its position and path MTU
  kMessageLength,   // contradicts the RETH, or above the maximum
  kReceiveTooLong,  // does not fit the posted receive
  kRemoteAccess,    // R_Key, rights, bounds
  kRemoteMemory,    // the memory of a valid R_Key is not accessible
  kReceiveMemory,   // the memory of the posted receive is not writable
  kReceiveBad,      // the posted receive is malformed
  kInvalidate,      // the R_Key of a SEND with invalidate cannot be invalidated
  kReceiveQueue,    // XRC: no shared receive queue of that number in the domain
  kNotYet,          // no fault: PacketEffects::offer_again
};
inline constexpr uint32_t kRequestFaultCount = 15;  // without kNotYet

struct FaultInfo {
  RequestFault fault;
  uint8_t nak_code;                 // kRnr: an RNR NAK; kNoNak: none
  CompletionStatus receive_status;  // of the receive that the message has taken, if any
  bool raises_event_always;         // false: only if no receive completes with the error
  QpEvent event;
  QpCounter counter;
  DropReason drop;  // result of HandlePacket
};
inline constexpr uint8_t kRnr = 0xFF;
inline constexpr uint8_t kNoNak = 0xFE;

const FaultInfo& InfoOf(RequestFault fault);

// The fault of a failed R_Key access: an invalid key is the peer's fault, inaccessible memory is
// not.
RequestFault FaultOfRemote(memory::MemoryStatus status);

// kNone or kOpcodeSequence (IBTA vol 1, 9.7.4.1, table of valid successions).
RequestFault CheckOpcodeSequence(InMessage message, const OpcodeInfo& info);

// kNone or kUnsupportedOpcode: unsupported, or the QP's access flags forbid it (9.7.4.1).
RequestFault CheckOpcodeEnabled(uint32_t access_flags, const OpcodeInfo& info);

// The rights that a FLUSH of this placement type requires of queue pair and region, in the bits of
// both (kQpAccess*, memory::Access); 0: no such type (A19.4.3.1).
uint32_t FlushRights(uint8_t placement_type);

// FIRST and MIDDLE carry a full path MTU, LAST 1 .. MTU, ONLY 0 .. MTU (9.7.4.1). kNone or
// kPayloadLength.
RequestFault CheckPayloadLength(Position position, uint32_t payload_bytes, uint32_t mtu_bytes);

// Checks the payload of a WRITE packet against the RETH: it must end exactly at `length` if and
// only if it is the last. kNone or kMessageLength.
RequestFault CheckWriteLength(bool is_last, uint32_t received, uint32_t payload_bytes,
                              uint32_t length, uint32_t max_message_bytes);

}  // namespace roci::roce
