// Definitions of Requester: set-up, which request is sent next, local operations, debug. Included
// by qp_inl.h only.
#pragma once

#include <bit>
#include <cassert>

#include "roce/requester.h"

namespace roci::roce {

// Most binds and local invalidates per call.
inline constexpr uint32_t kLocalBudget = 16;

template <class Host>
Requester<Host>::Requester(QpContext& context, std::span<SendRecord> records)
    : context_(context),
      records_(records.data()),
      mask_(static_cast<uint32_t>(records.size()) - 1) {
  assert(std::has_single_bit(records.size()));
}

template <class Host>
Requester<Host>::Requester(QpContext& context, uint32_t record_count)
    : context_(context), mask_(record_count - 1) {
  assert(std::has_single_bit(record_count));
}

template <class Host>
void Requester<Host>::Reset() {
  Start(Psn());
  more_work_ = false;
}

template <class Host>
void Requester<Host>::Start(Psn sq_psn) {
  head_ = cursor_ = tail_ = 0;
  una_ = send_psn_ = sent_end_ = next_psn_ = sq_psn;
  rd_atomic_outstanding_ = 0;
  durable_outstanding_ = 0;
  since_ack_request_ = 0;
  retries_left_ = context_.attributes.retry_count;
  rnr_retries_left_ = context_.attributes.rnr_retry;
  rnr_waiting_ = false;
  recovering_ = probed_tail_ = false;
  repeating_ = false;
  timer_shift_ = 0;
  SetWindow(context_.config.limits.window_packets);
  widening_ = 0;
  receives_started_ = receives_done_ = receive_limit_ = messages_done_ = 0;
  obeys_credits_ = held_back_ = credit_waiting_ = probing_ = false;
  expects_updates_ = true;
  deadline_ = kNever;
  pacer_.StopWaiting();
  ForgetKept();
  if (context_.reorder != nullptr) {
    context_.reorder->narrowed_until = sq_psn;
    context_.reorder->responder = AskedPeer();
  }
  more_work_ = true;
}

template <class Host>
bool Requester<Host>::CanTransmit() const {
  const QpState state = context_.state();
  if (state != QpState::kRts && state != QpState::kSqd) return false;
  if (!context_.IsReliable() && head_ != cursor_) return true;  // completions are due
  if (rnr_waiting_ || pacer_.waiting() || !WindowOpen() || AwaitsProbe()) return false;
  if (cursor_ == tail_) return state == QpState::kRts && more_work_ && tail_ - head_ <= mask_;
  const SendRecord& record = At(cursor_);
  // Poll() notes that a request is held back.
  return !record.failed && MayStart(record) && (!held_back_ || HasCredit(record));
}

// Whether the first packet of `record` may be sent now. SQD finishes started requests and starts
// none (IBTA vol 1, 10.3.1.5); a fence waits for all earlier READs and atomics (10.8.3.3).
template <class Host>
bool Requester<Host>::MayStart(const SendRecord& record) const {
  if (record.started) return true;
  if (context_.state() == QpState::kSqd) return false;
  if (record.wqe.fence && rd_atomic_outstanding_ != 0) return false;
  // A local invalidate waits for all earlier requests (the local invalidate fence, 10.6.5.1).
  if (record.wqe.opcode == WorkOpcode::kLocalInvalidate) return &record == &At(head_);
  if (!IsAnswered(InfoOf(record.wqe.opcode).work_class)) return true;
  if (rd_atomic_outstanding_ >= context_.attributes.max_rd_atomic) return false;
  if (durable_outstanding_ != 0 && FollowsDurableFlush(record.wqe)) [[unlikely]] {
    return false;
  }
  // A responder can distinguish new requests from duplicates in half of the PSN space only.
  return InFlight() == 0 || InFlight() + record.packets <= kMaxPsnsInFlight;
}

template <class Host>
bool Requester<Host>::Poll(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload) {
  if (!context_.IsReliable() && head_ != cursor_) ReportSent(host);
  for (uint32_t budget = kLocalBudget; budget != 0 && CanTransmit(); --budget) {
    if (cursor_ == tail_ && !FetchNext(host)) return false;
    SendRecord& record = At(cursor_);
    if (record.failed || !MayStart(record)) [[unlikely]] {
      return false;
    }
    if (!HasCredit(record)) [[unlikely]] {
      HoldBack(host, now);
      continue;
    }
    if (record.packets != 0) [[likely]] {
      if (pacer_.limited() && !pacer_.MayGo(now)) [[unlikely]] {
        return false;
      }
      return BuildPacket(host, now, record, out, payload);
    }
    if (!PassLocal(host, record)) return false;
  }
  return false;
}

template <class Host>
memory::MemoryStatus Requester<Host>::ExecuteLocal(Host& host, const SendWqe& wqe) {
  switch (wqe.opcode) {
    case WorkOpcode::kBindMw:
      return host.BindWindow(wqe);
    case WorkOpcode::kRegisterList:
      return host.RegisterList(wqe);
    default:
      return host.Invalidate(Key(wqe.invalidate_key));
  }
}

// A bind, registration or local invalidate: executed once, in queue order, before any later request
// starts; it completes in order (IBTA vol 1, 10.8.3.3). False: it failed, or it took long and other
// queue pairs get their turn.
template <class Host>
bool Requester<Host>::PassLocal(Host& host, SendRecord& record) {
  bool was_short = true;
  if (!record.started) {
    const memory::MemoryStatus status = ExecuteLocal(host, record.wqe);
    if (status != memory::MemoryStatus::kOk) {
      FailRecord(host, cursor_, CompletionStatus::kMwBindError);
      return false;
    }
    record.started = true;
    // The cost of a registration grows with the number of runs in its list.
    was_short = record.wqe.opcode != WorkOpcode::kRegisterList;
  }
  ++cursor_;
  if (context_.IsReliable()) CompleteLocals(host);
  return was_short;
}

// Fetches one work request into the ring. False: the queue is empty.
template <class Host>
bool Requester<Host>::FetchNext(Host& host) {
  assert(records_ != nullptr);
  // An empty ring restarts at index 0: a queue pair touches only as many records as it ever has in
  // flight.
  if (head_ == tail_) head_ = cursor_ = tail_ = 0;
  SendRecord& record = At(tail_);
  CompletionStatus status = CompletionStatus::kLocalQpOperationError;
  const FetchResult result = host.FetchSend(record.wqe, status);
  if (result == FetchResult::kEmpty) {
    more_work_ = false;
    return false;
  }
  assert(static_cast<size_t>(record.wqe.opcode) < kWorkOpcodeCount);
  if (result == FetchResult::kOk) [[likely]] {
    status =
        CheckSendWqe(record.wqe, context_.config.type, context_.mtu_bytes(),
                     context_.config.limits.max_message_bytes, context_.attributes.max_rd_atomic);
  }
  record.first_psn = next_psn_;
  record.packets = 0;
  record.received = 0;
  record.started = false;
  record.failed = false;
  ++tail_;
  if (result == FetchResult::kBad || status != CompletionStatus::kSuccess) [[unlikely]] {
    FailRecord(host, tail_ - 1, status);
    return false;
  }
  const WorkClass work_class = InfoOf(record.wqe.opcode).work_class;
  if (context_.config.type == QpType::kRawPacket) [[unlikely]] {
    record.packets = 1;
  } else if (work_class == WorkClass::kSegmented || work_class == WorkClass::kRead) [[likely]] {
    record.packets = PacketsOf(record.wqe.length, context_.mtu_shift);
  } else {
    record.packets = work_class == WorkClass::kLocal ? 0 : 1;
  }
  next_psn_ += record.packets;
  return true;
}

template <class Host>
void Requester<Host>::Describe(RequesterDebug& out) const {
  out.oldest_unacknowledged = una_;
  out.next_to_send = send_psn_;
  out.end_of_sent = sent_end_;
  out.next_new = next_psn_;
  out.records = tail_ - head_;
  out.rd_atomic_outstanding = rd_atomic_outstanding_;
  out.window = window_;
  out.retries_left = retries_left_;
  out.rnr_retries_left = rnr_retries_left_;
  out.rnr_waiting = rnr_waiting_;
  out.recovering = recovering_;
  out.credit_waiting = held_back_;
  out.obeys_credits = obeys_credits_;
  out.credits = obeys_credits_ ? FreeCredits() : 0;
  out.deadline = deadline_;
}

}  // namespace roci::roce
