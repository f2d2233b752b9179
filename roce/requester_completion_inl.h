// Completions of a requester: success, failure, flush. Included by qp_inl.h only.
#pragma once

#include <cassert>
#include <cstddef>

#include "roce/requester.h"

namespace roci::roce {

template <class Host>
void Requester<Host>::CompleteHead(Host& host, CompletionStatus status) {
  const SendRecord& record = At(head_++);
  messages_done_ += record.packets != 0;
  receives_done_ += ReceivesOf(record.wqe.opcode);
  Complete(host, record, status);
}

template <class Host>
void Requester<Host>::Complete(Host& host, const SendRecord& record, CompletionStatus status) {
  const WorkInfo& info = InfoOf(record.wqe.opcode);
  if (IsAnswered(info.work_class) && record.started) {
    --rd_atomic_outstanding_;
    durable_outstanding_ -= IsDurableFlush(record.wqe);
  }
  Completion completion{};
  completion.wr_id = record.wqe.wr_id;
  completion.slot = record.wqe.slot;
  if (info.work_class == WorkClass::kRead) completion.byte_length = record.wqe.length;
  if (info.work_class == WorkClass::kAtomic) completion.byte_length = 8;
  completion.status = status;
  completion.opcode = info.completion;
  completion.signaled =
      record.wqe.signaled || context_.config.sq_sig_all || status != CompletionStatus::kSuccess;
  host.CompleteSend(completion);
}

// A request that fails locally completes after all older requests, which are not affected; no later
// request is sent.
template <class Host>
void Requester<Host>::FailRecord(Host& host, uint32_t index, CompletionStatus status) {
  SendRecord& record = At(index);
  record.failed = true;
  record.local_status = status;
  if (index == head_) FailHead(host, status);
}

template <class Host>
void Requester<Host>::FailHead(Host& host, CompletionStatus status) {
  assert(head_ != tail_);
  host.Count(CounterOfFailure(status));
  host.Count(QpCounter::kReqCqeErrors);
  CompleteHead(host, status);
  StopHolding();
  deadline_ = kNever;
  rnr_waiting_ = false;
  (context_.HasSendErrorState() ? context_.send_error_pending : context_.error_pending) = true;
}

// A fatal NAK: older requests complete, its own request fails. An older READ or atomic without its
// response completes as flushed: the peer will not send it any more.
template <class Host>
void Requester<Host>::FailAt(Host& host, Psn psn, CompletionStatus status) {
  while (head_ != tail_) {
    SendRecord& record = At(head_);
    if (record.failed) {
      FailHead(host, record.local_status);
      return;
    }
    const Psn end = record.first_psn + record.packets;
    if (StepsForward(una_, psn) < StepsForward(una_, end)) {
      FailHead(host, status);
      return;
    }
    una_ = end;
    const bool unanswered = IsAnswered(InfoOf(record.wqe.opcode).work_class);
    CompleteHead(host,
                 unanswered ? CompletionStatus::kWorkRequestFlushed : CompletionStatus::kSuccess);
  }
}

template <class Host>
void Requester<Host>::HandleTransmitFault(Host& host, Psn psn, CompletionStatus status) {
  for (uint32_t i = head_; i != tail_; ++i) {
    const SendRecord& record = At(i);
    if (!InWindow(psn, record.first_psn, record.packets)) continue;
    // The packet was not sent. Later packets must not be sent either: the peer would see a gap.
    cursor_ = i;
    send_psn_ = psn;
    repeating_ = false;
    if (!context_.IsReliable()) una_ = sent_end_ = psn;
    FailRecord(host, i, status);
    return;
  }
}

// Responses arrive in order, so the request in progress is the oldest.
template <class Host>
void Requester<Host>::HandlePlaceFault(Host& host) {
  if (head_ == tail_) return;
  const SendRecord& record = At(head_);
  if (!record.started || !IsAnswered(InfoOf(record.wqe.opcode).work_class)) return;
  FailHead(host, CompletionStatus::kLocalProtectionError);
}

// Completes executed local operations that have no unanswered request before them.
template <class Host>
void Requester<Host>::CompleteLocals(Host& host) {
  while (head_ != tail_) {
    const SendRecord& record = At(head_);
    if (record.packets != 0 || !record.started || record.failed) [[likely]] {
      return;
    }
    if (cursor_ == head_) ++cursor_;
    CompleteHead(host, CompletionStatus::kSuccess);
  }
}

template <class Host>
void Requester<Host>::ReportSent(Host& host) {
  while (head_ != cursor_ && !At(head_).failed) CompleteHead(host, CompletionStatus::kSuccess);
  if (head_ != tail_ && At(head_).failed) FailHead(host, At(head_).local_status);
}

template <class Host>
bool Requester<Host>::Flush(Host& host, uint32_t budget) {
  StopHolding();
  ForgetKept();
  deadline_ = kNever;
  rnr_waiting_ = false;
  for (; budget != 0; --budget) {
    if (head_ != tail_) {
      host.Count(QpCounter::kReqCqeFlushErrors);
      CompleteHead(host, CompletionStatus::kWorkRequestFlushed);
      continue;
    }
    // It was not in flight and needs no record of the ring.
    SendRecord record{};
    CompletionStatus ignored{};
    if (host.FetchSend(record.wqe, ignored) == FetchResult::kEmpty) break;
    assert(static_cast<size_t>(record.wqe.opcode) < kWorkOpcodeCount);
    host.Count(QpCounter::kReqCqeFlushErrors);
    Complete(host, record, CompletionStatus::kWorkRequestFlushed);
  }
  cursor_ = head_;
  una_ = sent_end_ = next_psn_ = send_psn_;  // for a send queue that returns from SQE to RTS
  return budget != 0;
}

}  // namespace roci::roce
