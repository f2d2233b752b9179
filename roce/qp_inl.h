// Definitions of Qp. Include it in the one .cc file that instantiates Qp for a host.
#pragma once

#include <algorithm>
#include <cassert>

#include "roce/host.h"
#include "roce/qp.h"
#include "roce/qp_congestion_inl.h"
#include "roce/qp_states_inl.h"
#include "roce/requester_answers_inl.h"
#include "roce/requester_completion_inl.h"
#include "roce/requester_credits_inl.h"
#include "roce/requester_early_inl.h"
#include "roce/requester_inl.h"
#include "roce/requester_packets_inl.h"
#include "roce/requester_recovery_inl.h"
#include "roce/requester_repeat_inl.h"
#include "roce/responder_answers_inl.h"
#include "roce/responder_execute_inl.h"
#include "roce/responder_gaps_inl.h"
#include "roce/responder_inl.h"
#include "roce/responder_replay_inl.h"
#include "roce/responder_unreliable_inl.h"

namespace roci::roce {

// What a packet counts in the turns of READ responses and requests, beyond its payload: about its
// headers. Requests without payload take turns, too.
inline constexpr int32_t kTurnBytesPerPacket = 64;

template <class Host>
Qp<Host>::Qp(const QpConfig& config, std::span<SendRecord> records,
             std::span<ResponderResource> resources, Dcqcn* congestion, ReorderState* reorder)
    : requester_(context_, records), responder_(context_, resources), congestion_(congestion) {
  static_assert(QpHost<Host>);
  Setup(config, resources.size(), reorder);
}

template <class Host>
Qp<Host>::Qp(const QpConfig& config, uint32_t record_count, std::span<ResponderResource> resources,
             Dcqcn* congestion, ReorderState* reorder)
    : requester_(context_, record_count), responder_(context_, resources), congestion_(congestion) {
  Setup(config, resources.size(), reorder);
}

template <class Host>
void Qp<Host>::Setup(const QpConfig& config, size_t resources, ReorderState* reorder) {
  assert(config.limits.window_packets >= 2 && config.limits.ack_every_packets >= 1);
  assert(config.limits.max_dest_rd_atomic <= resources);
  context_.config = config;
  context_.adapts = congestion_ != nullptr && IsConnected(config.type);
  if (context_.IsReliable()) context_.reorder = reorder;
  assert(context_.reorder == nullptr || config.limits.reorder_wait_ns != 0);
  Clear();
}

// The time of a packet that is missing is an event of its own.
template <class Host>
TimeNs Qp<Host>::NextReorderTimeout() const {
  if (flushing_) return 0;
  return std::min({requester_.deadline(), throttle_end_, context_.reorder->request_deadline,
                   context_.reorder->response_deadline});
}

// Inlined: it ends every call, and mostly has nothing to do.
template <class Host>
[[gnu::always_inline]] inline void Qp<Host>::Settle(Host& host) {
  if (context_.error_pending) [[unlikely]] {
    EnterError(host);
  } else if (context_.send_error_pending) [[unlikely]] {
    EnterSendError(host);
  }
  if (drain_notify_ && requester_.IsDrained()) [[unlikely]] {
    drain_notify_ = false;
    host.RaiseEvent(QpEvent::kSendQueueDrained);
  }
}

// ---- Input ----

template <class Host>
PacketEffects Qp<Host>::HandlePacket(Host& host, TimeNs now, const Packet& packet) {
  const Transport transport = packet.info->transport;
  // A raw packet queue pair gets frames by flow rules only.
  if (transport != TransportOf(type()) || type() == QpType::kRawPacket) [[unlikely]] {
    if (transport == Transport::kCnp) HandleCnp(host, now, packet);
    return {transport == Transport::kCnp ? DropReason::kNone : DropReason::kWrongTransport};
  }
  if (packet.ecn() != kEcnCongestionExperienced) [[likely]]
    return HandleTransportPacket(host, now, packet);
  const bool cnp_to_source = NoteMark(host, now, packet);
  PacketEffects effects = HandleTransportPacket(host, now, packet);
  effects.cnp_to_source = cnp_to_source;
  return effects;
}

// A packet of this queue pair's transport.
template <class Host>
PacketEffects Qp<Host>::HandleTransportPacket(Host& host, TimeNs now, const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  const QpState current = state();
  if (!info.is_request) {
    if (current != QpState::kRts && current != QpState::kSqd) [[unlikely]] {
      return {DropReason::kQpState};
    }
    if (type() == QpType::kXrcRecv) return {DropReason::kUnexpectedOpcode};
    const PacketEffects effects = requester_.HandleResponse(host, now, packet);
    Settle(host);
    return effects;
  }
  if (current < QpState::kRtr || current == QpState::kErr) [[unlikely]] {
    return {DropReason::kQpState};
  }
  if (type() == QpType::kXrcSend) [[unlikely]] {
    return {DropReason::kUnexpectedOpcode};
  }
  if (!communication_established_ && type() != QpType::kUd) [[unlikely]] {
    communication_established_ = true;
    host.RaiseEvent(QpEvent::kCommunicationEstablished);
  }
  const PacketEffects effects = responder_.HandleRequest(host, now, packet);
  Settle(host);
  return effects;
}

template <class Host>
bool Qp<Host>::IsDue(bool is_request, Psn due) const {
  return is_request ? ClassifyPsn(responder_.expected_psn(), due) != PsnClass::kGap
                    : requester_.IsDue(due);
}

template <class Host>
DropReason Qp<Host>::HandleFrame(Host& host, std::span<const std::byte> frame,
                                 const FrameInfo& info) {
  assert(type() == QpType::kRawPacket);
  if (state() < QpState::kRtr || state() == QpState::kErr) return DropReason::kQpState;
  const DropReason reason = responder_.HandleFrame(host, frame, info);
  Settle(host);
  return reason;
}

template <class Host>
Effects Qp<Host>::HandleWork(Host& host) {
  if (state() == QpState::kErr || state() == QpState::kSqe) [[unlikely]] {
    ContinueFlush(host);
    return {HasTransmit()};
  }
  requester_.NoteWork();
  if (responder_.awaits_receives()) [[unlikely]]
    responder_.NoteReceives(host);
  return {HasTransmit()};
}

template <class Host>
Effects Qp<Host>::HandleTimeout(Host& host, TimeNs now) {
  if (flushing_) {
    ContinueFlush(host);
    return {HasTransmit()};
  }
  if (throttle_end_ <= now) [[unlikely]]
    EndThrottle();
  requester_.HandleTimeout(host, now);
  if (context_.reorder != nullptr) [[unlikely]]
    responder_.HandleTimeout(now);
  Settle(host);
  return {HasTransmit()};
}

template <class Host>
Effects Qp<Host>::NoteDurable() {
  responder_.NoteDurable();
  return {HasTransmit()};
}

// ---- Output ----

template <class Host>
bool Qp<Host>::HasTransmit() const {
  if ((congested_ & (kCnpPending | kThrottleWaits)) != 0) [[unlikely]] {
    return (congested_ & kCnpPending) != 0 || responder_.MayAnswerAtOnce() ||
           requester_.HasReport();
  }
  return responder_.CanTransmit() || requester_.CanTransmit();
}

template <class Host>
bool Qp<Host>::HasRequest() const {
  return requester_.CanTransmit();
}

template <class Host>
bool Qp<Host>::HasAnswer() const {
  return (congested_ & kCnpPending) != 0 || responder_.MayAnswerAtOnce();
}

template <class Host>
std::optional<uint32_t> Qp<Host>::AnswerQueue() const {
  return responder_.AnswerQueue();
}

template <class Host>
Polled Qp<Host>::PollTransmit(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload) {
  payload.Clear();
  if (congested_ != 0) [[unlikely]]
    return PollCongested(host, now, out, payload);
  const bool has_packet = PollSides(host, now, out, payload);
  if (!has_packet || !context_.IsReliable()) [[unlikely]]
    return FinishPoll(host, has_packet);
  Settle(host);
  return {.kind = Polled::Kind::kPacket, .has_more = true};
}

template <class Host>
Polled Qp<Host>::FinishPoll(Host& host, bool has_packet) {
  Polled polled;
  if (has_packet) polled = requester_.LastSent();
  Settle(host);
  if (!has_packet) polled.has_more = HasTransmit();
  return polled;
}

// Adapters run requester and responder independently (IBTA vol 1 prescribes no order), so a peer's
// READs must not hold up the queue pair's own requests.
template <class Host>
bool Qp<Host>::PollSides(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload) {
  if (responder_.NextHasData()) [[unlikely]]
    return PollInTurn(host, now, out, payload);
  return responder_.Poll(host, out, payload) || requester_.Poll(host, now, out, payload);
}

// The responder's next packet is a READ response with data: it and the requester take turns.
template <class Host>
bool Qp<Host>::PollInTurn(Host& host, TimeNs now, TxPacket& out, memory::SegmentList& payload) {
  const auto charge = [&out] {
    return kTurnBytesPerPacket + static_cast<int32_t>(out.payload_length);
  };
  if (response_lead_bytes_ > 0) {
    if (requester_.Poll(host, now, out, payload)) {
      response_lead_bytes_ -= charge();
      return true;
    }
    response_lead_bytes_ = 0;  // an idle requester saves up no turns
    payload.Clear();           // a request that failed may have left segments
  }
  if (!responder_.Poll(host, out, payload)) return requester_.Poll(host, now, out, payload);
  response_lead_bytes_ += charge();
  return true;
}

template <class Host>
Effects Qp<Host>::HandleTransmitFault(Host& host, TimeNs now, const TxPacket& packet,
                                      CompletionStatus status) {
  (void)now;
  // After a CNP, the next ECN mark causes a new one.
  if (state() == QpState::kErr || state() == QpState::kReset || packet.opcode == Opcode::kCnp) {
    return {HasTransmit()};
  }
  if (InfoOf(packet.opcode).is_request) {
    requester_.HandleTransmitFault(host, packet.psn, status);
  } else {
    responder_.HandleTransmitFault(host, packet.psn);
  }
  Settle(host);
  return {HasTransmit()};
}

template <class Host>
void Qp<Host>::HandlePlaceFault(Host& host, const PlaceFault& fault) {
  if (state() == QpState::kReset) return;
  if (fault.of_request) responder_.HandlePlaceFault(host, fault);
  if (fault.of_response && !fault.send_reported) requester_.HandlePlaceFault(host);
  if (state() != QpState::kErr) EnterError(host);
}

template <class Host>
void Qp<Host>::ForgetReceiveQueue(uint32_t number) {
  responder_.ForgetReceiveQueue(number);
}

template <class Host>
void Qp<Host>::Describe(TimeNs now, QpDebug& out) const {
  requester_.Describe(out.requester);
  responder_.Describe(out.responder);
  out.flushing = flushing_;
  out.selective_repeat = context_.selective && !context_.reorder->requester.is_deaf() &&
                         !context_.reorder->responder.is_deaf();
  if ((congested_ & kThrottled) == 0) return;
  Dcqcn then = *congestion_;
  if (then.Advance(now)) out.throttled_to_kbps = then.rate_kbps();
}

}  // namespace roci::roce
