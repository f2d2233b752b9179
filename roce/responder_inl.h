// Definitions of Responder: set-up, packet sequence, dispatch, flush, debug. Included by qp_inl.h
// only.
#pragma once

#include <bit>
#include <cassert>

#include "roce/responder.h"

namespace roci::roce {

template <class Host>
Responder<Host>::Responder(QpContext& context, std::span<ResponderResource> resources)
    : context_(context),
      resources_(resources.data()),
      mask_(static_cast<uint32_t>(resources.size()) - 1) {
  assert(std::has_single_bit(resources.size()));
}

template <class Host>
void Responder<Host>::Reset() {
  oldest_ = emit_ = end_ = 0;
  expected_ = Psn();
  msn_ = Msn();
  message_ = MessageState();
  has_receive_ = false;
  gap_reported_ = false;
  discarding_ = false;
  srq_number_ = kNoSrq;
  awaits_receives_ = false;
  ForgetKept();
  ForgetPeer();
  DropAnswers();
}

// Selective repeat: how the peer answers requests for missing packets.
template <class Host>
void Responder<Host>::ForgetPeer() {
  if (context_.reorder == nullptr) return;
  context_.reorder->requester = AskedPeer();
}

template <class Host>
void Responder<Host>::Start(Psn rq_psn) {
  Reset();
  expected_ = rq_psn;
  ack_asked_psn_ = rq_psn - 1;
}

template <class Host>
void Responder<Host>::DropAnswers() {
  emit_ = end_;
  nak_pending_ = false;
  ack_pending_ = false;
  durable_started_ = false;
  waits_for_durable_ = false;
  replaying_ = false;
}

template <class Host>
PacketEffects Responder<Host>::HandleRequest(Host& host, TimeNs now, const Packet& packet) {
  switch (context_.config.type) {
    case QpType::kUc:
      return {HandleUnreliable(host, packet)};
    case QpType::kUd:
      return {HandleDatagram(host, packet)};
    case QpType::kXrcRecv:
      return HandleXrc(host, now, packet);
      [[likely]] default : return HandleReliable(host, now, packet);
  }
}

// Extended reliable connection (IBTA vol 1, A14): every request names a shared receive queue, whose
// protection domain applies; all packets of a message must name the same one.
template <class Host>
PacketEffects Responder<Host>::HandleXrc(Host& host, TimeNs now, const Packet& packet) {
  if (packet.psn == expected_) [[likely]] {
    const uint32_t number = packet.ext.xrc.srq_number;
    const bool continues = message_.kind != InMessage::kNone;
    if ((continues && number != srq_number_) || !host.SelectReceiveQueue(number)) [[unlikely]] {
      return {Fault(host, RequestFault::kReceiveQueue)};
    }
    srq_number_ = number;
  }
  return HandleReliable(host, now, packet);
}

template <class Host>
void Responder<Host>::ForgetReceiveQueue(uint32_t number) {
  if (srq_number_ != number) return;
  has_receive_ = false;
  srq_number_ = kNoSrq;
}

template <class Host>
PacketEffects Responder<Host>::HandleReliable(Host& host, TimeNs now, const Packet& packet) {
  if (packet.psn != expected_) [[unlikely]] {
    if (ClassifyPsn(expected_, packet.psn) == PsnClass::kGap) return HandleGap(host, now, packet);
    return {HandleDuplicate(host, packet)};
  }
  RequestFault fault = CheckOpcodeSequence(message_.kind, *packet.info);
  if (fault == RequestFault::kNone) [[likely]] {
    fault = CheckOpcodeEnabled(context_.attributes.access_flags, *packet.info);
  }
  if (emit_ != end_ && fault == RequestFault::kNone && MustFollowFlush(*packet.info)) [[unlikely]] {
    ForgetKept();  // the peer sends this packet and all later ones again
    AskForExpected();
    return {DropReason::kBehindFlush};
  }
  if (fault == RequestFault::kNone) [[likely]] {
    fault = Execute(host, packet);
  }
  if (fault != RequestFault::kNone) [[unlikely]] {
    if (fault == RequestFault::kNotYet) return {.offer_again = true};
    return {Fault(host, fault)};
  }
  if (gap_reported_ || awaits_kept_) [[unlikely]] {
    return {.early = LeaveGap(now)};
  }
  return {};
}

// IBTA vol 1, A19: an atomic or ATOMIC WRITE after a FLUSH for persistence must not be visible
// before the flushed bytes are durable. It is dropped; a sequence NAK after the FLUSH's answer
// requests it again.
template <class Host>
bool Responder<Host>::MustFollowFlush(const OpcodeInfo& info) const {
  if (info.operation != Operation::kAtomicWrite && info.operation != Operation::kCompareSwap &&
      info.operation != Operation::kFetchAdd) {
    return false;
  }
  for (uint32_t i = emit_; i != end_; ++i) {
    if (At(i).kind == AnswerKind::kDurable) return true;
  }
  return false;
}

template <class Host>
RequestFault Responder<Host>::Execute(Host& host, const Packet& packet) {
  RequestFault fault = RequestFault::kUnsupportedOpcode;
  switch (packet.info->operation) {
    case Operation::kSend:
      fault = ExecuteSend(host, packet);
      break;
    case Operation::kWrite:
      fault = ExecuteWrite(host, packet);
      break;
    case Operation::kReadRequest:
      return ExecuteRead(host, packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return ExecuteAtomic(host, packet);
    case Operation::kAtomicWrite:
      return ExecuteAtomicWrite(host, packet);
    case Operation::kFlush:
      return ExecuteFlush(host, packet);
    default:
      return fault;
  }
  if (fault == RequestFault::kNone) [[likely]] {
    ++expected_;
    ack_pending_ |= packet.ack_request;
    ack_asked_psn_ = packet.psn;
  }
  return fault;
}

template <class Host>
bool Responder<Host>::Flush(Host& host, uint32_t budget) {
  if (has_receive_) {
    FailReceive(host, CompletionStatus::kWorkRequestFlushed);
  }
  if (context_.config.uses_srq) return true;
  for (; budget != 0; --budget) {
    CompletionStatus ignored{};
    if (host.FetchRecv(receive_, ignored, nullptr) == FetchResult::kEmpty) return true;
    has_receive_ = true;
    FailReceive(host, CompletionStatus::kWorkRequestFlushed);
  }
  return false;
}

template <class Host>
void Responder<Host>::Describe(ResponderDebug& out) const {
  out.expected_psn = expected_;
  out.msn = msn_;
  out.resources_pending = 0;
  for (uint32_t i = emit_; i != end_; ++i) out.resources_pending += At(i).pending ? 1u : 0u;
  out.ack_pending = ack_pending_;
  out.nak_pending = nak_pending_;
  out.gap_reported = gap_reported_;
  out.in_message = message_.kind != InMessage::kNone;
  out.waits_for_durable = waits_for_durable_;
  out.awaits_receives = awaits_receives_;
}

}  // namespace roci::roce
