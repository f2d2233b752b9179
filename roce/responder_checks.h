// Pure checks of the responder, in the order of IBTA vol 1, 9.7.4.1: PSN, opcode sequence, opcode,
// then (with the host) resources, R_Key, lengths. And the table of what each fault leads to.
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

// IBTA vol 1, 9.7.4.1: the half of the PSN space before the expected one is duplicates.
constexpr PsnClass ClassifyPsn(Psn expected, Psn psn) {
  const int32_t distance = Distance(expected, psn);
  if (distance == 0) return PsnClass::kExpected;
  return distance < 0 ? PsnClass::kDuplicate : PsnClass::kGap;
}

// The message under way on the receiving side.
enum class InMessage : uint8_t { kNone, kSend, kWrite };
struct MessageState {
  InMessage kind = InMessage::kNone;
  uint32_t received = 0;  // bytes placed
  // WRITE only: what the RETH of the first packet said.
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
  kPayloadLength,   // not what position and path MTU ask for
  kMessageLength,   // contradicts the RETH, or above the maximum
  kReceiveTooLong,  // does not fit the posted receive
  kRemoteAccess,    // R_Key, rights, bounds
  kRemoteMemory,    // the memory behind a good R_Key could not be touched
  kReceiveMemory,   // the posted receive names memory that may not or cannot be written
  kReceiveBad,      // the posted receive is malformed
  kInvalidate,      // R_Key of a SEND with invalidate is not one that can be
  kReceiveQueue,    // XRC: no shared receive queue of that number in the domain
  kNotYet,          // no fault: the host offers the packet again
};
inline constexpr uint32_t kRequestFaultCount = 15;  // without kNotYet

struct FaultInfo {
  RequestFault fault;
  uint8_t nak_code;                 // of the NAK; kRnr below for RNR, kNoNak for none
  CompletionStatus receive_status;  // of the receive that the message holds, if it does
  bool raises_event_always;         // even if a receive completes with the error
  QpEvent event;                    // else only without a receive
  QpCounter counter;
  DropReason drop;  // what HandlePacket answers
};
inline constexpr uint8_t kRnr = 0xFF;
inline constexpr uint8_t kNoNak = 0xFE;

const FaultInfo& InfoOf(RequestFault fault);

// What a failed use of an R_Key is: a bad key is the peer's fault, memory that went away is not.
RequestFault FaultOfRemote(memory::MemoryStatus status);

// kNone or kOpcodeSequence (IBTA vol 1, 9.7.4.1, table of valid successions).
RequestFault CheckOpcodeSequence(InMessage message, const OpcodeInfo& info);

// kNone or kUnsupportedOpcode: the QP's access flags forbid it or we do not have it (9.7.4.1).
RequestFault CheckOpcodeEnabled(uint32_t access_flags, const OpcodeInfo& info);

// The rights that a FLUSH of the given placement type asks of queue pair and region, in the bits of
// both (kQpAccess*, memory::Access); 0 if there is no such type (A19.4.3.1).
uint32_t FlushRights(uint8_t placement_type);

// FIRST and MIDDLE carry a full path MTU, LAST 1 .. MTU, ONLY 0 .. MTU (9.7.4.1). kNone or
// kPayloadLength.
RequestFault CheckPayloadLength(Position position, uint32_t payload_bytes, uint32_t mtu_bytes);

// Does a WRITE packet's payload agree with the RETH: ends exactly at `length` if and only if it is
// the last. kNone or kMessageLength.
RequestFault CheckWriteLength(bool is_last, uint32_t received, uint32_t payload_bytes,
                              uint32_t length, uint32_t max_message_bytes);

}  // namespace roci::roce
