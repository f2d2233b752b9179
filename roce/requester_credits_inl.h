// End-to-end credits of a requester (IBTA vol 1, 9.7.7.2): requests are held back while the peer
// has no receive for them. Included by qp_inl.h only.
#pragma once

#include <algorithm>

#include "roce/headers.h"
#include "roce/requester.h"

namespace roci::roce {

// An unsolicited ACK with credits repeats the PSN of an earlier answer.
template <class Host>
DropReason Requester<Host>::HandleStale(const Packet& packet) {
  const Aeth aeth = packet.ext.aeth;
  if (packet.info->operation != Operation::kAcknowledge || packet.info->Has(ExtHeader::kMissing) ||
      aeth.kind() != AethKind::kAck || aeth.value() == kNoCredits || !TakeCredits(aeth)) {
    return DropReason::kStaleAcknowledge;
  }
  expects_updates_ = true;
  return DropReason::kNone;
}

// Credits count from the AETH's MSN. If that is ahead of the requests completed here, the limit
// comes out too low until their answers arrive. False: the peer gave as much before.
template <class Host>
bool Requester<Host>::TakeCredits(Aeth aeth) {
  if (aeth.value() == kNoCredits) {
    if (obeys_credits_) [[unlikely]]
      StopObeying();
    return false;
  }
  if (Distance(Msn(messages_done_), aeth.msn) < 0) return false;  // older than another one
  const uint32_t limit = receives_done_ + CreditsOf(aeth.value());
  const uint32_t given = receive_limit_ - (probing_ ? 1 : 0);  // the peer gave none for a probe
  if (obeys_credits_ && static_cast<int32_t>(limit - given) <= 0) return false;
  obeys_credits_ = true;
  receive_limit_ = limit;
  if (FreeCredits() > 0) StopHolding();
  probing_ = false;
  return true;
}

template <class Host>
void Requester<Host>::StopObeying() {
  obeys_credits_ = probing_ = false;
  StopHolding();
}

// The peer has no receive for the next request. The answers to the requests in flight bring
// credits.
template <class Host>
void Requester<Host>::HoldBack(Host& host, TimeNs now) {
  held_back_ = true;
  host.Count(QpCounter::kCreditWaits);
  if (IsDrained()) AwaitCredit(now);
}

// Nothing is in flight, so only an unsolicited ACK can bring credits. The IBTA allows one packet
// without a credit (9.7.7.2). It is sent at once if the peer sends no such ACKs, else after a
// while, since the ACK may be lost.
template <class Host>
void Requester<Host>::AwaitCredit(TimeNs now) {
  if (!expects_updates_) return StartProbe();
  credit_waiting_ = true;
  deadline_ = now + std::min(AckTimeoutNs(context_.attributes.timeout), kLongestCreditWaitNs);
}

template <class Host>
void Requester<Host>::StartProbe() {
  StopHolding();
  probing_ = true;
  receive_limit_ = receives_started_ + 1;
}

template <class Host>
void Requester<Host>::StopHolding() {
  held_back_ = false;
  if (!credit_waiting_) return;
  credit_waiting_ = false;
  deadline_ = kNever;
}

}  // namespace roci::roce
