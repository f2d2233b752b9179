// Tables and checks of the requester.
#include "roce/requester_checks.h"

#include <array>
#include <cstddef>

#include "roce/headers.h"

namespace roci::roce {
namespace {

constexpr WorkInfo Segmented(CompletionOpcode completion, Opcode first, Opcode middle, Opcode last,
                             Opcode only) {
  WorkInfo info{};
  info.work_class = WorkClass::kSegmented;
  info.completion = completion;
  info.first = first;
  info.middle = middle;
  info.last = last;
  info.only = only;
  return info;
}

constexpr WorkInfo Single(WorkClass work_class, CompletionOpcode completion, Opcode only) {
  WorkInfo info{};
  info.work_class = work_class;
  info.completion = completion;
  info.only = only;
  return info;
}

constexpr WorkInfo Local(CompletionOpcode completion) {
  WorkInfo info{};
  info.work_class = WorkClass::kLocal;
  info.completion = completion;
  return info;
}

// Indexed by WorkOpcode.
constexpr std::array<WorkInfo, kWorkOpcodeCount> MakeTable() {
  std::array<WorkInfo, kWorkOpcodeCount> table{};
  const auto of = [&table](WorkOpcode opcode) -> WorkInfo& {
    return table[static_cast<size_t>(opcode)];
  };
  of(WorkOpcode::kSend) =
      Segmented(CompletionOpcode::kSend, Opcode::kRcSendFirst, Opcode::kRcSendMiddle,
                Opcode::kRcSendLast, Opcode::kRcSendOnly);
  of(WorkOpcode::kSendWithImm) =
      Segmented(CompletionOpcode::kSend, Opcode::kRcSendFirst, Opcode::kRcSendMiddle,
                Opcode::kRcSendLastImm, Opcode::kRcSendOnlyImm);
  of(WorkOpcode::kSendWithImm).has_immediate = true;
  of(WorkOpcode::kSendWithInvalidate) =
      Segmented(CompletionOpcode::kSend, Opcode::kRcSendFirst, Opcode::kRcSendMiddle,
                Opcode::kRcSendLastInvalidate, Opcode::kRcSendOnlyInvalidate);
  of(WorkOpcode::kSendWithInvalidate).has_invalidate = true;
  of(WorkOpcode::kRdmaWrite) =
      Segmented(CompletionOpcode::kRdmaWrite, Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle,
                Opcode::kRcWriteLast, Opcode::kRcWriteOnly);
  of(WorkOpcode::kRdmaWrite).has_reth = true;
  of(WorkOpcode::kRdmaWriteWithImm) =
      Segmented(CompletionOpcode::kRdmaWrite, Opcode::kRcWriteFirst, Opcode::kRcWriteMiddle,
                Opcode::kRcWriteLastImm, Opcode::kRcWriteOnlyImm);
  of(WorkOpcode::kRdmaWriteWithImm).has_reth = true;
  of(WorkOpcode::kRdmaWriteWithImm).has_immediate = true;
  of(WorkOpcode::kRdmaRead) =
      Single(WorkClass::kRead, CompletionOpcode::kRdmaRead, Opcode::kRcReadRequest);
  of(WorkOpcode::kCompareSwap) =
      Single(WorkClass::kAtomic, CompletionOpcode::kCompareSwap, Opcode::kRcCompareSwap);
  of(WorkOpcode::kFetchAdd) =
      Single(WorkClass::kAtomic, CompletionOpcode::kFetchAdd, Opcode::kRcFetchAdd);
  of(WorkOpcode::kLocalInvalidate) = Local(CompletionOpcode::kLocalInvalidate);
  of(WorkOpcode::kBindMw) = Local(CompletionOpcode::kBindMw);
  of(WorkOpcode::kAtomicWrite) =
      Single(WorkClass::kConfirmed, CompletionOpcode::kAtomicWrite, Opcode::kRcAtomicWrite);
  of(WorkOpcode::kAtomicWrite).has_reth = true;
  of(WorkOpcode::kFlush) =
      Single(WorkClass::kConfirmed, CompletionOpcode::kFlush, Opcode::kRcFlush);
  of(WorkOpcode::kFlush).has_reth = true;
  of(WorkOpcode::kRegisterList) = Local(CompletionOpcode::kRegisterList);
  return table;
}

}  // namespace

const std::array<WorkInfo, kWorkOpcodeCount> kWorkTable = MakeTable();

CompletionStatus CheckSendWqe(const SendWqe& wqe, QpType type, uint32_t mtu_bytes,
                              uint32_t max_message_bytes, uint32_t max_rd_atomic) {
  if (max_rd_atomic == 0 && IsAnswered(InfoOf(wqe.opcode).work_class)) {
    return CompletionStatus::kLocalQpOperationError;
  }
  if (type == QpType::kRawPacket && wqe.length < EthernetHeader::kBytes) {
    return CompletionStatus::kLocalLengthError;
  }
  const uint32_t limit = type == QpType::kUd ? mtu_bytes : max_message_bytes;
  return wqe.length <= limit ? CompletionStatus::kSuccess : CompletionStatus::kLocalLengthError;
}

CompletionStatus StatusOfNak(uint8_t nak_code) {
  switch (static_cast<NakCode>(nak_code)) {
    case NakCode::kInvalidRequest:
    case NakCode::kInvalidRdRequest:
      return CompletionStatus::kRemoteInvalidRequest;
    case NakCode::kRemoteAccessError:
      return CompletionStatus::kRemoteAccessError;
    case NakCode::kRemoteOperationalError:
      return CompletionStatus::kRemoteOperationError;
    default:
      return CompletionStatus::kBadResponse;
  }
}

QpCounter CounterOfFailure(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::kRetryExceeded:
      return QpCounter::kRetryExceeded;
    case CompletionStatus::kRnrRetryExceeded:
      return QpCounter::kRnrRetryExceeded;
    case CompletionStatus::kRemoteInvalidRequest:
      return QpCounter::kReqRemoteInvalidRequest;
    case CompletionStatus::kRemoteAccessError:
      return QpCounter::kReqRemoteAccessErrors;
    case CompletionStatus::kRemoteOperationError:
      return QpCounter::kReqRemoteOperationErrors;
    case CompletionStatus::kBadResponse:
      return QpCounter::kReqBadResponses;
    default:
      return QpCounter::kReqLocalErrors;
  }
}

bool ReadResponseFits(Position position, uint32_t payload_bytes, uint32_t index, uint32_t length,
                      uint8_t mtu_shift, bool in_parts) {
  const uint32_t offset = index << mtu_shift;
  const uint32_t left = length - offset;
  const uint32_t mtu_bytes = 1u << mtu_shift;
  const bool is_last = left <= mtu_bytes;
  const bool says_last = position == Position::kLast || position == Position::kOnly;
  const bool is_placed = is_last == says_last || (in_parts && says_last);
  return is_placed && payload_bytes == (is_last ? left : mtu_bytes);
}

}  // namespace roci::roce
