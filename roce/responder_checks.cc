// The responder's checks and its table of faults.
#include "roce/responder_checks.h"

#include <array>
#include <cstddef>

namespace roci::roce {
namespace {

constexpr uint8_t Nak(NakCode code) { return static_cast<uint8_t>(code); }

constexpr FaultInfo InvalidRequest(RequestFault fault, DropReason drop) {
  return {fault, Nak(NakCode::kInvalidRequest), CompletionStatus::kRemoteInvalidRequest,
          false, QpEvent::kInvalidRequest,      QpCounter::kRespInvalidRequest,
          drop};
}

constexpr FaultInfo ReceiveFault(RequestFault fault, CompletionStatus status) {
  return {fault,
          Nak(NakCode::kRemoteOperationalError),
          status,
          false,
          QpEvent::kFatal,
          QpCounter::kRespOperationErrors,
          DropReason::kMemoryAccess};
}

// A receive that a WRITE with immediate data has taken completes with a local access error
// (11.6.2).
constexpr FaultInfo AccessFault(RequestFault fault) {
  return {fault,
          Nak(NakCode::kRemoteAccessError),
          CompletionStatus::kLocalAccessError,
          true,
          QpEvent::kAccessViolation,
          QpCounter::kRespRemoteAccessErrors,
          DropReason::kMemoryAccess};
}

// Indexed by RequestFault. IBTA vol 1, 9.9.3 (responder faults and their classes).
constexpr FaultInfo kFaults[] = {
    {RequestFault::kNone, 0, CompletionStatus::kSuccess, false, QpEvent::kFatal,
     QpCounter::kRespOperationErrors, DropReason::kNone},
    {RequestFault::kNoReceive, kRnr, CompletionStatus::kSuccess, false, QpEvent::kFatal,
     QpCounter::kOutOfBuffer, DropReason::kNoReceiveBuffer},
    InvalidRequest(RequestFault::kOpcodeSequence, DropReason::kUnexpectedOpcode),
    InvalidRequest(RequestFault::kUnsupportedOpcode, DropReason::kUnexpectedOpcode),
    InvalidRequest(RequestFault::kTooManyReads, DropReason::kUnexpectedOpcode),
    InvalidRequest(RequestFault::kMisalignedAtomic, DropReason::kMemoryAccess),
    InvalidRequest(RequestFault::kPayloadLength, DropReason::kPayloadLength),
    InvalidRequest(RequestFault::kMessageLength, DropReason::kPayloadLength),
    {RequestFault::kReceiveTooLong, Nak(NakCode::kInvalidRequest),
     CompletionStatus::kLocalLengthError, false, QpEvent::kInvalidRequest,
     QpCounter::kRespLocalLengthErrors, DropReason::kReceiveTooLong},
    AccessFault(RequestFault::kRemoteAccess),
    ReceiveFault(RequestFault::kRemoteMemory, CompletionStatus::kRemoteOperationError),
    ReceiveFault(RequestFault::kReceiveMemory, CompletionStatus::kLocalProtectionError),
    ReceiveFault(RequestFault::kReceiveBad, CompletionStatus::kLocalQpOperationError),
    // Class J: a memory management error of the receive; the peer gets no answer.
    {RequestFault::kInvalidate, kNoNak, CompletionStatus::kMwBindError, false,
     QpEvent::kAccessViolation, QpCounter::kRespRemoteAccessErrors, DropReason::kMemoryAccess},
    InvalidRequest(RequestFault::kReceiveQueue, DropReason::kReceiveQueue),
};
static_assert(std::size(kFaults) == kRequestFaultCount);

constexpr bool IsTableInOrder() {
  for (uint32_t i = 0; i < kRequestFaultCount; ++i) {
    if (static_cast<uint32_t>(kFaults[i].fault) != i) return false;
  }
  return true;
}
static_assert(IsTableInOrder());

}  // namespace

const FaultInfo& InfoOf(RequestFault fault) { return kFaults[static_cast<size_t>(fault)]; }

RequestFault FaultOfRemote(memory::MemoryStatus status) {
  switch (status) {
    case memory::MemoryStatus::kOk:
      return RequestFault::kNone;
    case memory::MemoryStatus::kFault:
    case memory::MemoryStatus::kTooManySegments:
      return RequestFault::kRemoteMemory;
    case memory::MemoryStatus::kMisaligned:
      return RequestFault::kMisalignedAtomic;
    default:
      return RequestFault::kRemoteAccess;
  }
}

RequestFault CheckOpcodeSequence(InMessage message, const OpcodeInfo& info) {
  const bool continues = info.position == Position::kMiddle || info.position == Position::kLast;
  InMessage needed = InMessage::kNone;
  if (continues) needed = info.operation == Operation::kSend ? InMessage::kSend : InMessage::kWrite;
  return message == needed ? RequestFault::kNone : RequestFault::kOpcodeSequence;
}

RequestFault CheckOpcodeEnabled(uint32_t access_flags, const OpcodeInfo& info) {
  uint32_t needed = 0;
  switch (info.operation) {
    case Operation::kSend:
      return RequestFault::kNone;
    case Operation::kWrite:
    case Operation::kAtomicWrite:
      needed = kQpAccessRemoteWrite;
      break;
    case Operation::kReadRequest:
      needed = kQpAccessRemoteRead;
      break;
    case Operation::kFlush:
      // CheckFlush checks which of the two the header requires.
      needed = kQpAccessFlushGlobal | kQpAccessFlushPersistent;
      break;
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      needed = kQpAccessRemoteAtomic;
      break;
    default:
      return RequestFault::kUnsupportedOpcode;
  }
  return (access_flags & needed) != 0 ? RequestFault::kNone : RequestFault::kUnsupportedOpcode;
}

uint32_t FlushRights(uint8_t placement_type) {
  static_assert(kQpAccessFlushGlobal == static_cast<uint32_t>(memory::Access::kFlushGlobal));
  static_assert(kQpAccessFlushPersistent ==
                static_cast<uint32_t>(memory::Access::kFlushPersistent));
  if ((placement_type & ~(Feth::kGlobalVisibility | Feth::kPersistence)) != 0) return 0;
  return ((placement_type & Feth::kGlobalVisibility) != 0 ? kQpAccessFlushGlobal : 0) |
         ((placement_type & Feth::kPersistence) != 0 ? kQpAccessFlushPersistent : 0);
}

RequestFault CheckPayloadLength(Position position, uint32_t payload_bytes, uint32_t mtu_bytes) {
  bool fits = false;
  switch (position) {
    case Position::kFirst:
    case Position::kMiddle:
      fits = payload_bytes == mtu_bytes;
      break;
    case Position::kLast:
      fits = payload_bytes >= 1 && payload_bytes <= mtu_bytes;
      break;
    case Position::kOnly:
      fits = payload_bytes <= mtu_bytes;
      break;
  }
  return fits ? RequestFault::kNone : RequestFault::kPayloadLength;
}

RequestFault CheckWriteLength(bool is_last, uint32_t received, uint32_t payload_bytes,
                              uint32_t length, uint32_t max_message_bytes) {
  if (length > max_message_bytes || received > length) return RequestFault::kMessageLength;
  const uint32_t left = length - received;
  const bool fits = is_last ? payload_bytes == left : payload_bytes < left;
  return fits ? RequestFault::kNone : RequestFault::kMessageLength;
}

}  // namespace roci::roce
