// Loss recovery of a requester: NAKs, timeouts, going back, the window after a loss (IBTA vol
// 1, 9.7.5 and 9.9.2). Included by qp_inl.h only.
#pragma once

#include <algorithm>

#include "roce/requester.h"

namespace roci::roce {

// The peer lacks the oldest unacknowledged packet. False: the same loss as before.
template <class Host>
bool Requester<Host>::TakeLoss(Host& host, QpCounter reason) {
  if (TakeAnswerToProbe()) {
    host.Count(reason);
    return true;
  }
  if (recovering_ || rnr_waiting_) return false;
  Retry(host, reason);
  return true;
}

template <class Host>
DropReason Requester<Host>::ImplyNak(Host& host) {
  TakeLoss(host, QpCounter::kImpliedNaks);
  return DropReason::kOutOfSequence;
}

// IBTA vol 1, 9.7.5.2: a NAK acknowledges everything before its PSN.
template <class Host>
DropReason Requester<Host>::HandleNak(Host& host, TimeNs now, Psn psn, uint8_t code) {
  if (code != static_cast<uint8_t>(NakCode::kPsnSequenceError)) {
    FailAt(host, psn, StatusOfNak(code));
    return DropReason::kNone;
  }
  if (!AcknowledgeBefore(host, now, psn)) return ImplyNak(host);
  if (una_ != psn || context_.error_pending) return DropReason::kNone;
  return TakeLoss(host, QpCounter::kPacketSequenceErrors) ? DropReason::kNone
                                                          : DropReason::kStaleAcknowledge;
}

// IBTA vol 1, 9.7.5.2.8 and 9.9.2.
template <class Host>
DropReason Requester<Host>::HandleRnrNak(Host& host, TimeNs now, Psn psn, uint8_t timer_code) {
  if (!AcknowledgeBefore(host, now, psn)) return ImplyNak(host);
  if (una_ != psn || context_.error_pending) return DropReason::kNone;
  if (rnr_waiting_) return DropReason::kStaleAcknowledge;
  host.Count(QpCounter::kRnrNaksReceived);
  if (context_.attributes.rnr_retry != kRetryForEver) {
    if (rnr_retries_left_ == 0) {
      FailHead(host, CompletionStatus::kRnrRetryExceeded);
      return DropReason::kNone;
    }
    --rnr_retries_left_;
  }
  // The peer has received the request (deviations.md).
  retries_left_ = context_.attributes.retry_count;
  Rewind();
  rnr_waiting_ = true;
  recovering_ = true;
  probed_tail_ = false;
  deadline_ = now + kRnrTimerNs[timer_code];
  return DropReason::kNone;
}

template <class Host>
void Requester<Host>::HandleTimeout(Host& host, TimeNs now) {
  pacer_.HandleTimeout(now);
  if (awaits_kept_ && now >= context_.reorder->response_deadline) [[unlikely]] {
    GiveUpMissing(host, now);
    return;
  }
  if (now < deadline_ || deadline_ == kNever) return;
  if (rnr_waiting_) {
    rnr_waiting_ = false;
    deadline_ = kNever;
    return;
  }
  if (credit_waiting_) {
    StartProbe();
    return;
  }
  if (context_.adapts) LengthenTimer();
  const bool is_first = retries_left_ == context_.attributes.retry_count;
  Retry(host, QpCounter::kAckTimeouts);
  if (context_.selective && is_first && !context_.error_pending) ProbeTail();
}

// Goes back to the oldest unacknowledged PSN, if the retry counter allows.
template <class Host>
void Requester<Host>::Retry(Host& host, QpCounter reason) {
  host.Count(reason);
  if (retries_left_ == 0) {
    FailHead(host, CompletionStatus::kRetryExceeded);
    return;
  }
  --retries_left_;
  recovering_ = true;
  probed_tail_ = false;
  if (context_.adapts) NarrowWindow();
  Rewind();
  deadline_ = kNever;  // armed by the first retransmission
}

template <class Host>
void Requester<Host>::Rewind() {
  send_psn_ = una_;
  cursor_ = head_;
  repeating_ = false;
}

template <class Host>
void Requester<Host>::ArmTimer(TimeNs now) {
  const uint64_t timeout_ns = AckTimeoutNs(context_.attributes.timeout);
  deadline_ = timeout_ns == kNever ? kNever : now + (timeout_ns << timer_shift_);
}

// Retransmitting a window into a full queue does not drain it, so the timeout backs off. The IBTA
// allows one to four times the attribute's time (vol 1, 9.7.6.1.3). Twice is enough where rates
// adapt as well; more would delay the detection of a dead peer.
template <class Host>
void Requester<Host>::LengthenTimer() {
  constexpr uint8_t kMostShift = 1;
  if (timer_shift_ < kMostShift) ++timer_shift_;
}

// Halves the timeout if the answer arrived in the first quarter of it.
template <class Host>
void Requester<Host>::ShortenTimer(TimeNs now) {
  const uint64_t timeout_ns = AckTimeoutNs(context_.attributes.timeout);
  if (timeout_ns == kNever || deadline_ == kNever || deadline_ < now) return;
  if (deadline_ - now >= (timeout_ns << timer_shift_) / 4 * 3) --timer_shift_;
}

// Without ECN, loss is the only sign of a full queue, and go-back-N would keep the queue full: the
// packets behind the lost one are still in it. Therefore the lost packet is retransmitted alone;
// its ACK shows that the queue has drained. Then slow start and congestion avoidance as in TCP (RFC
// 5681): the window doubles up to half of its old size, then grows by one packet per window.
template <class Host>
void Requester<Host>::NarrowWindow() {
  if (window_ > 1) doubling_end_ = window_ / 2;  // 1: the retransmission was lost
  SetWindow(1);
  widening_ = 0;
}

// A narrowed window asks for at least four ACKs per window: the peer reports a loss only when later
// packets arrive.
template <class Host>
void Requester<Host>::SetWindow(uint32_t window) {
  const QpLimits& limits = context_.config.limits;
  window_ = window;
  ack_every_ = limits.ack_every_packets;
  if (window < limits.window_packets) ack_every_ = std::clamp(window / 2, 1U, ack_every_);
}

template <class Host>
void Requester<Host>::WidenWindow(uint32_t packets) {
  const uint32_t limit = context_.config.limits.window_packets;
  uint32_t window = window_;
  if (window < doubling_end_) {
    window = std::min(window + packets, doubling_end_);
  } else {
    for (widening_ += packets; widening_ >= window && window < limit; ++window) {
      widening_ -= window;
    }
  }
  SetWindow(window);
}

}  // namespace roci::roce
