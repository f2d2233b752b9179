// Definitions of Qp: received and sent CNPs, sending while throttled. Included by qp_inl.h only.
#pragma once

#include "roce/qp.h"
#include "roce/requester_packets_inl.h"

namespace roci::roce {

// Handles a packet with an ECN mark (IBTA vol 1, A17.9.3, CA17-44). Acknowledgements cause no CNP,
// since their sender cannot slow down; nor do multicast packets, since all members would answer at
// once. True: a CNP to a source of UD has become pending.
template <class Host>
bool Qp<Host>::NoteMark(Host& host, TimeNs now, const Packet& packet) {
  host.Count(QpCounter::kMarkedPackets);
  if (congestion_ == nullptr || state() < QpState::kRtr || state() == QpState::kErr) return false;
  const Operation operation = packet.info->operation;
  if (operation == Operation::kAcknowledge || operation == Operation::kAtomicAcknowledge)
    return false;
  const bool is_datagram = type() == QpType::kUd;
  if (is_datagram &&
      (packet.dest_qpn == kMulticastQpn || packet.ext.deth.qkey != context_.attributes.qkey)) {
    return false;
  }
  if (!congestion_->TakeNotification(now)) return false;
  // A pending CNP keeps its destination.
  if ((congested_ & kCnpPending) != 0) return false;
  congested_ |= kCnpPending;
  notified_qpn_ = is_datagram ? packet.ext.deth.src_qpn : context_.attributes.dest_qpn;
  return is_datagram;
}

// IBTA vol 1, A17.9.3. The owner has checked that the addresses are the peer's, so other hosts
// cannot throttle the QP. UD ignores CNPs: it has no single peer, so that any host could.
template <class Host>
DropReason Qp<Host>::HandleCnp(Host& host, TimeNs now, const Packet& packet) {
  const bool is_living = state() >= QpState::kRtr && state() != QpState::kErr;
  if (congestion_ == nullptr || !IsConnected(type()) || !is_living || !packet.becn) {
    host.Count(QpCounter::kCnpsIgnored);
    return DropReason::kNone;
  }
  host.Count(QpCounter::kCnpsHandled);
  congestion_->HandleCnp(now);
  if (congestion_->throttled()) congested_ |= kThrottled;
  return DropReason::kNone;
}

// Answers without data are not throttled: they are short, and without them the peer retransmits.
template <class Host>
bool PollWaiting(Host& host, Responder<Host>& responder, Requester<Host>& requester, TxPacket& out,
                 memory::SegmentList& payload) {
  if (responder.MayAnswerAtOnce() && responder.Poll(host, out, payload)) return true;
  requester.Report(host);
  return false;
}

template <class Host>
Polled Qp<Host>::PollCongested(Host& host, TimeNs now, TxPacket& out,
                               memory::SegmentList& payload) {
  if ((congested_ & kCnpPending) == 0) {
    return FinishPoll(host, PollSlowed(host, now, out, payload));
  }
  BuildCnp(host, out);
  Settle(host);
  return {.kind = Polled::Kind::kCnp, .has_more = true};
}

template <class Host>
bool Qp<Host>::PollSlowed(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload) {
  // HandleTimeout ends the wait, so that HasTransmit and this function agree.
  if ((congested_ & kThrottleWaits) != 0)
    return PollWaiting(host, responder_, requester_, out, payload);
  if (congestion_->Advance(now)) return PollThrottled(host, now, out, payload);
  congested_ = 0;
  return PollSides(host, now, out, payload);
}

// Charges packets with data.
template <class Host>
bool Qp<Host>::PollThrottled(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload) {
  if (!congestion_->MayGo(now)) {
    congested_ |= kThrottleWaits;
    throttle_end_ = congestion_->next_send();
    return PollWaiting(host, responder_, requester_, out, payload);
  }
  if (!PollSides(host, now, out, payload)) return false;
  const bool is_request = InfoOf(out.opcode).is_request;
  if (is_request || out.payload_length != 0) congestion_->Charge(now, BytesOnWire(type(), out));
  // Request an ACK before a pause: the pause must not count as the peer's ACK timeout.
  if (is_request && context_.IsReliable() && !congestion_->MayGo(now)) out.ack_request = true;
  return true;
}

template <class Host>
void Qp<Host>::BuildCnp(Host& host, TxPacket& out) {
  congested_ &= static_cast<uint8_t>(~kCnpPending);
  host.Count(QpCounter::kCnpsSent);
  out.opcode = Opcode::kCnp;
  out.solicited = false;
  out.ack_request = false;
  out.fecn = false;
  out.becn = true;
  out.psn = Psn();
  out.dest_qpn = notified_qpn_;
  out.payload_length = 0;
}

template <class Host>
void Qp<Host>::EndThrottle() {
  congested_ &= static_cast<uint8_t>(~kThrottleWaits);
  throttle_end_ = kNever;
}

}  // namespace roci::roce
