// Definitions of Qp: attributes and states (IBTA vol 1, 10.3.1). Included by qp_inl.h only.
#pragma once

#include <cassert>
#include <utility>

#include "roce/qp.h"

namespace roci::roce {

template <class Host>
ModifyResult Qp<Host>::Modify(Host& host, const QpAttributes& attributes, uint32_t mask) {
  const QpState from = state();
  if ((mask & kAttrCurState) != 0 && attributes.cur_state != from) {
    return ModifyResult::kBadTransition;
  }
  const QpState to = (mask & kAttrState) != 0 ? attributes.state : from;
  const ModifyResult result = CheckModify(type(), from, to, mask);
  if (result != ModifyResult::kOk) return result;
  assert(CheckAttributeValues(attributes, mask, context_.config.limits.ForAttributes()) ==
         ModifyResult::kOk);
  if (from == QpState::kSqe && to == QpState::kRts && MustFlush(host)) {
    return ModifyResult::kMustFlush;
  }
  ApplyAttributes(attributes, mask);
  // It belongs to one transition (IBTA vol 1, 11.2.5.2).
  if ((mask & kAttrSqdNotify) == 0) context_.attributes.en_sqd_async_notify = false;
  EnterState(host, from, to);
  Settle(host);
  return ModifyResult::kOk;
}

template <class Host>
void Qp<Host>::ApplyAttributes(const QpAttributes& attributes, uint32_t mask) {
  QpAttributes& a = context_.attributes;
  const auto set = [mask](uint32_t bit, auto& to, const auto& from) {
    if ((mask & bit) != 0) to = from;
  };
  set(kAttrSqdNotify, a.en_sqd_async_notify, attributes.en_sqd_async_notify);
  set(kAttrAccessFlags, a.access_flags, attributes.access_flags);
  set(kAttrPkeyIndex, a.pkey_index, attributes.pkey_index);
  set(kAttrPort, a.port, attributes.port);
  set(kAttrQkey, a.qkey, attributes.qkey);
  set(kAttrPathMtu, a.path_mtu, attributes.path_mtu);
  set(kAttrTimeout, a.timeout, attributes.timeout);
  set(kAttrRetryCount, a.retry_count, attributes.retry_count);
  set(kAttrRnrRetry, a.rnr_retry, attributes.rnr_retry);
  set(kAttrRqPsn, a.rq_psn, attributes.rq_psn);
  set(kAttrMaxRdAtomic, a.max_rd_atomic, attributes.max_rd_atomic);
  set(kAttrMaxDestRdAtomic, a.max_dest_rd_atomic, attributes.max_dest_rd_atomic);
  set(kAttrMinRnrTimer, a.min_rnr_timer, attributes.min_rnr_timer);
  set(kAttrSqPsn, a.sq_psn, attributes.sq_psn);
  set(kAttrPathMigState, a.path_mig_state, attributes.path_mig_state);
  set(kAttrDestQpn, a.dest_qpn, attributes.dest_qpn);
  if ((mask & kAttrRateLimit) != 0) {
    a.rate_limit_kbps = attributes.rate_limit_kbps;
    a.rate_burst_bytes = attributes.rate_burst_bytes;
    requester_.SetRate(a.rate_limit_kbps, a.rate_burst_bytes);
  }
  SetPathMtu(a.path_mtu);
}

// UD has no path MTU attribute: the port's maximum applies.
template <class Host>
void Qp<Host>::SetPathMtu(PathMtu mtu) {
  if (type() == QpType::kUd) mtu = context_.config.limits.max_path_mtu;
  context_.mtu_shift = static_cast<uint8_t>(7 + static_cast<uint8_t>(mtu));
}

// Requests posted in SQE must not be sent after it, also those whose doorbell was not seen yet.
template <class Host>
bool Qp<Host>::MustFlush(Host& host) {
  if (requester_.Flush(host, kFlushBudget)) return false;
  return ++flush_calls_ <= kFlushCalls;
}

template <class Host>
void Qp<Host>::ChangeState(Host& host, QpState to) {
  const QpState from = std::exchange(context_.attributes.state, to);
  if (from != to) host.NoteState(from, to);
}

// Effects of a transition apart from the attributes. `to` is legal from `from`.
template <class Host>
void Qp<Host>::EnterState(Host& host, QpState from, QpState to) {
  ChangeState(host, to);
  switch (to) {
    case QpState::kReset:
      Clear();
      if (congestion_ != nullptr) congestion_->Reset();
      break;
    case QpState::kInit:
      break;
    case QpState::kRtr:
      responder_.Start(context_.attributes.rq_psn);
      break;
    case QpState::kRts:
      communication_established_ = true;
      drain_notify_ = false;
      flushing_ = false;
      if (from == QpState::kRtr) {
        requester_.Start(context_.attributes.sq_psn);
      } else {
        requester_.Resume();
      }
      break;
    case QpState::kSqd:
      if (from == QpState::kRts) drain_notify_ = context_.attributes.en_sqd_async_notify;
      break;
    case QpState::kSqe:
      break;
    case QpState::kErr:
      responder_.DropAnswers();
      if (from != QpState::kErr) EnterError(host);
      break;
  }
}

template <class Host>
bool Qp<Host>::CanRepeatSelectively() const {
  return context_.reorder != nullptr && type() == QpType::kRc;
}

template <class Host>
void Qp<Host>::UseSelectiveRepeat() {
  assert(state() == QpState::kRtr && CanRepeatSelectively());
  context_.selective = true;
}

template <class Host>
void Qp<Host>::Clear() {
  context_.attributes = QpAttributes();
  context_.selective = context_.config.limits.selective_repeat && CanRepeatSelectively();
  SetPathMtu(context_.attributes.path_mtu);
  context_.error_pending = false;
  context_.send_error_pending = false;
  requester_.Reset();
  requester_.SetRate(0, 0);
  responder_.Reset();
  communication_established_ = false;
  drain_notify_ = false;
  flushing_ = false;
  last_wqe_raised_ = false;
  congested_ = 0;
  response_lead_bytes_ = 0;
  throttle_end_ = kNever;
}

template <class Host>
void Qp<Host>::Query(QpAttributes& out) const {
  out = context_.attributes;
  out.cur_state = out.state;
  if (out.state >= QpState::kRtr) out.rq_psn = responder_.expected_psn();
  if (out.state >= QpState::kRts) out.sq_psn = requester_.next_psn();
  out.sq_draining = out.state == QpState::kSqd && !requester_.IsDrained();
}

// IBTA vol 1, 10.3.1.7: all work requests, outstanding or posted later, complete as flushed;
// packets are dropped.
template <class Host>
void Qp<Host>::EnterError(Host& host) {
  ChangeState(host, QpState::kErr);
  congested_ &= static_cast<uint8_t>(~kCnpPending);
  EndThrottle();
  requester_.ForgetKept();
  responder_.ForgetKept();
  context_.error_pending = false;
  context_.send_error_pending = false;
  drain_notify_ = false;
  ContinueFlush(host);
}

// UC and UD (10.3.1.6): the send queue is flushed, the receive queue keeps working.
template <class Host>
void Qp<Host>::EnterSendError(Host& host) {
  ChangeState(host, QpState::kSqe);
  context_.send_error_pending = false;
  drain_notify_ = false;
  flush_calls_ = 0;
  flushing_ = !requester_.Flush(host, kFlushBudget);
}

template <class Host>
void Qp<Host>::ContinueFlush(Host& host) {
  const bool sends_done = requester_.Flush(host, kFlushBudget);
  if (state() == QpState::kSqe) {
    flushing_ = !sends_done;
    return;
  }
  const bool receives_done = responder_.Flush(host, kFlushBudget);
  flushing_ = !sends_done || !receives_done;
  if (context_.config.uses_srq && !last_wqe_raised_) {
    last_wqe_raised_ = true;
    host.RaiseEvent(QpEvent::kLastWqeReached);
  }
}

}  // namespace roci::roce
