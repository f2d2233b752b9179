// Definitions of Qp: congestion notifications received and sent, sending while throttled. Included
// by qp_inl.h only.
#pragma once

#include "roce/qp.h"
#include "roce/requester_inl.h"

namespace roci::roce {

// IBTA vol 1, A17.9.3, CA17-44: a packet of the peer's had to wait in a queue on its way.
// Acknowledgements do not count, for no sender could send fewer of them, nor does what comes to a
// whole group, whose members would answer all at once. True: a notification is owed, and none was
// before.
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
  // One that waits keeps its destination.
  if ((congested_ & kOwesCnp) != 0) return false;
  congested_ |= kOwesCnp;
  notified_qpn_ = is_datagram ? packet.ext.deth.src_qpn : context_.attributes.dest_qpn;
  return true;
}

// IBTA vol 1, A17.9.3. The owner has compared the addresses with those of the peer, so others can
// slow nothing down. A datagram's queue pair has no one peer, so that anybody could.
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

// Answers without data do not wait: they are few bytes, and stand between the peer and its
// retransmission.
template <class Host>
bool PollWaiting(Host& host, Responder<Host>& responder, Requester<Host>& requester, TxPacket& out,
                 memory::SegmentList& payload) {
  if (responder.MayAnswerAtOnce() && responder.Poll(host, out, payload)) return true;
  requester.Report(host);
  return false;
}

template <class Host>
bool Qp<Host>::PollCongested(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload) {
  if ((congested_ & kOwesCnp) != 0) {
    BuildCnp(host, out);
    return true;
  }
  // Until its end has come to HandleTimeout, so that HasTransmit knew as much.
  if ((congested_ & kThrottleWaits) != 0)
    return PollWaiting(host, responder_, requester_, out, payload);
  if (congestion_->Advance(now)) return PollThrottled(host, now, out, payload);
  congested_ = 0;
  return responder_.Poll(host, out, payload) || requester_.Poll(host, now, out, payload);
}

// What has data is paid for.
template <class Host>
bool Qp<Host>::PollThrottled(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload) {
  if (!congestion_->MayGo(now)) {
    congested_ |= kThrottleWaits;
    throttle_end_ = congestion_->next_send();
    return PollWaiting(host, responder_, requester_, out, payload);
  }
  if (responder_.Poll(host, out, payload)) {
    if (out.payload_length != 0) congestion_->Charge(now, BytesOnWire(type(), out));
    return true;
  }
  if (!requester_.Poll(host, now, out, payload)) return false;
  congestion_->Charge(now, BytesOnWire(type(), out));
  // Our own pause must not look like the peer's silence.
  if (context_.IsReliable() && !congestion_->MayGo(now)) out.ack_request = true;
  return true;
}

template <class Host>
void Qp<Host>::BuildCnp(Host& host, TxPacket& out) {
  congested_ &= static_cast<uint8_t>(~kOwesCnp);
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
