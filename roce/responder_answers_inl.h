// Definitions of Responder: answers. Included by qp_inl.h only.
#pragma once

#include <algorithm>
#include <cassert>

#include "roce/responder.h"

namespace roci::roce {

template <class Host>
void Responder<Host>::SetNak(Psn psn, uint8_t syndrome) {
  nak_pending_ = true;
  nak_is_selective_ = false;
  waits_for_durable_ = false;  // the NAK may precede the answer that waits
  nak_psn_ = psn;
  nak_syndrome_ = syndrome;
}

template <class Host>
void Responder<Host>::HandlePlaceFault(Host& host, const PlaceFault& fault) {
  const FaultInfo& info = InfoOf(RequestFault::kRemoteMemory);
  DropAnswers();
  host.Count(info.counter);
  if (context_.IsReliable()) {
    SetNak(fault.psn, Aeth::Nak(msn_, static_cast<NakCode>(info.nak_code)).syndrome);
  }
  // Fails the receive of the message in progress; earlier receives have completed.
  if (fault.recv_reported || message_.kind != InMessage::kSend) return;
  const Psn start = expected_ - (message_.received >> context_.mtu_shift);
  if (Distance(start, fault.psn) >= 0) FailReceive(host, CompletionStatus::kLocalProtectionError);
}

// Answers are sent in PSN order: READ and atomic responses, then the NAK, then one ACK for
// everything executed. An ACK or NAK before a READ response would be an implied NAK of the
// response.
template <class Host>
bool Responder<Host>::Poll(Host& host, TxPacket& out, memory::SegmentList& payload) {
  if (waits_for_durable_) return false;
  if (replaying_ && BuildReplay(host, out, payload)) [[unlikely]]
    return true;
  if (emit_ != end_ && !NakPrecedes(At(emit_))) {
    const bool ready = At(emit_).kind != AnswerKind::kDurable || MakeDurable(host);
    if (waits_for_durable_) return false;
    if (ready && BuildResourceAnswer(host, out, payload)) return true;
  }
  if (nak_pending_ && !AckPrecedesNak()) {
    nak_pending_ = false;
    // The NAK acknowledges the same requests.
    if (nak_psn_ == expected_) ack_pending_ = false;
    CountNak(host);
    BuildAcknowledge(out, nak_psn_, Aeth{nak_syndrome_, msn_});
    if (nak_is_selective_) [[unlikely]] {
      out.opcode = Opcode::kRcSelectiveNak;
      out.ext.missing = context_.reorder->requests.TakeWanted();
    }
    return true;
  }
  if (ack_pending_) {
    ack_pending_ = false;
    host.Count(QpCounter::kAcksSent);
    BuildAcknowledge(out, AcknowledgedPsn(), Aeth::Ack(msn_, GiveCredits(host)));
    return true;
  }
  return false;
}

// Credits count from the MSN in the same AETH, so the receive of a message in progress counts (IBTA
// vol 1, 9.7.7.2). The answer to an older READ or atomic may say less than there is.
template <class Host>
uint8_t Responder<Host>::GiveCredits(Host& host) {
  if (!context_.GivesCredits()) return kNoCredits;
  // NoteReceives will report the next one. A queue pair that receives nothing but WRITEs does not
  // look at its receive queue again.
  if (awaits_receives_ && !has_receive_) return CreditCode(0);
  const uint32_t receives = host.PostedReceives() + (has_receive_ ? 1 : 0);
  awaits_receives_ = receives == 0;
  return CreditCode(receives);
}

// An unsolicited ACK with new credits (9.7.7.2). Only a peer that was told that there are none
// needs it: otherwise its next request brings them.
template <class Host>
void Responder<Host>::NoteReceives(Host& host) {
  if (!awaits_receives_ || host.PostedReceives() == 0) return;
  awaits_receives_ = false;
  ack_pending_ = true;
}

// The newest executed PSN, except that an ACK of a duplicate does not cover later READs and atomics
// at the end: their responses may be lost, and Linux takes an ACK with the PSN of a READ as its
// completion, without data.
template <class Host>
Psn Responder<Host>::AcknowledgedPsn() const {
  Psn psn = expected_ - 1;
  for (uint32_t i = end_; i != oldest_; --i) {
    const ResponderResource& newest = At(i - 1);
    const Psn before = newest.first_psn - 1;
    if (before + newest.packets != psn || Distance(ack_asked_psn_, before) < 0) break;
    psn = before;
  }
  return psn;
}

template <class Host>
bool Responder<Host>::NakPrecedes(const ResponderResource& resource) const {
  return nak_pending_ && Distance(nak_psn_, resource.first_psn + resource.next) >= 0;
}

// A NAK acknowledges earlier requests, but Linux ignores that for an RNR NAK and would retransmit
// them, and a peer may not know selective NAKs.
template <class Host>
bool Responder<Host>::AckPrecedesNak() const {
  return ack_pending_ && nak_psn_ == expected_ && (IsNotReady() || nak_is_selective_);
}

template <class Host>
void Responder<Host>::CountNak(Host& host) {
  const Aeth aeth{nak_syndrome_, msn_};
  if (nak_is_selective_) {
    host.Count(QpCounter::kSelectiveNaksSent);
  } else if (aeth.kind() == AethKind::kRnrNak) {
    host.Count(QpCounter::kRnrNaksSent);
  } else if (aeth.nak_code() == NakCode::kPsnSequenceError) {
    host.Count(QpCounter::kSequenceNaksSent);
  } else {
    host.Count(QpCounter::kErrorNaksSent);
  }
}

// IBTA vol 1, A19.4.4: a FLUSH for persistence is answered when its bytes are durable. The
// write-back starts when all earlier requests are answered, so one at a time; duplicates wait for
// the same one. False: not yet, or a NAK is pending instead.
template <class Host>
bool Responder<Host>::MakeDurable(Host& host) {
  ResponderResource& resource = At(emit_);
  if (durable_started_) {
    const DurableState state = host.PollDurable();
    if (state != DurableState::kBusy) return FinishDurable(host, resource, state);
  }
  if (context_.config.type == QpType::kXrcRecv && !host.SelectReceiveQueue(resource.srq_number)) {
    FailAnswer(host, resource.first_psn, RequestFault::kReceiveQueue);
    return false;
  }
  return FinishDurable(
      host, resource,
      host.StartDurable(resource.rkey, resource.va, resource.length, resource.whole_region));
}

template <class Host>
bool Responder<Host>::FinishDurable(Host& host, ResponderResource& resource, DurableState state) {
  switch (state) {
    case DurableState::kBusy:
    case DurableState::kRunning:
      durable_started_ = state == DurableState::kRunning;
      waits_for_durable_ = true;
      return false;
    case DurableState::kDone:
      durable_started_ = false;
      resource.kind = AnswerKind::kConfirmation;
      resource.length = 0;
      return true;
    case DurableState::kFailed:
      FailAnswer(host, resource.first_psn, RequestFault::kRemoteMemory);
      return false;
    case DurableState::kNoAccess:
      FailAnswer(host, resource.first_psn, RequestFault::kRemoteAccess);
      return false;
  }
  return false;
}

// False: the memory failed and a NAK is pending instead.
template <class Host>
bool Responder<Host>::BuildResourceAnswer(Host& host, TxPacket& out, memory::SegmentList& payload) {
  ResponderResource& resource = At(emit_);
  assert(resource.pending);
  if (resource.kind == AnswerKind::kAtomic) {
    host.Count(QpCounter::kAtomicResponsesSent);
    BuildAcknowledge(out, resource.first_psn, Aeth::Ack(resource.msn, GiveCredits(host)));
    out.opcode = WithTransport(Opcode::kRcAtomicAcknowledge, TransportOf(context_.config.type));
    out.ext.atomic_ack.original = resource.original;
    ++resource.next;
  } else if (!BuildReadResponse(host, resource, out, payload)) {
    return false;
  }
  if (resource.next == resource.packets) {
    resource.pending = false;
    resource.replayed = true;
    // The answer acknowledges everything before it as well.
    if (resource.first_psn + resource.packets == expected_) ack_pending_ = false;
    emit_ = NextPending(emit_ + 1);
  }
  return true;
}

// Selective repeat: one of the READ responses that the peer has asked for again. False: there is
// none, or the memory failed and a NAK is pending instead.
template <class Host>
bool Responder<Host>::BuildReplay(Host& host, TxPacket& out, memory::SegmentList& payload) {
  ReorderState& state = *context_.reorder;
  while (replaying_) {
    Reread& oldest = state.replays[0];
    const bool is_kept = static_cast<int32_t>(oldest.resource - oldest_) >= 0;
    if (is_kept && oldest.next != oldest.end) {
      ResponderResource part = At(oldest.resource);
      part.start = oldest.start;
      part.next = oldest.next++;
      part.packets = oldest.end;
      return BuildReadResponse(host, part, out, payload);
    }
    std::copy(state.replays.begin() + 1, state.replays.begin() + state.replay_count,
              state.replays.begin());
    replaying_ = --state.replay_count != 0;
  }
  return false;
}

template <class Host>
bool Responder<Host>::BuildReadResponse(Host& host, ResponderResource& resource, TxPacket& out,
                                        memory::SegmentList& payload) {
  static constexpr Opcode kOpcodes[] = {Opcode::kRcReadResponseFirst, Opcode::kRcReadResponseMiddle,
                                        Opcode::kRcReadResponseLast, Opcode::kRcReadResponseOnly};
  const uint32_t offset = resource.next << context_.mtu_shift;
  const uint32_t left = resource.length - offset;
  const uint32_t bytes = left < context_.mtu_bytes() ? left : context_.mtu_bytes();
  const Psn psn = resource.first_psn + resource.next;
  if (bytes != 0) {
    if (context_.config.type == QpType::kXrcRecv && !host.SelectReceiveQueue(resource.srq_number))
        [[unlikely]] {
      FailAnswer(host, psn, RequestFault::kReceiveQueue);
      return false;
    }
    const memory::MemoryStatus status = host.ResolveRemote(
        resource.rkey, resource.va + offset, bytes, memory::Access::kRemoteRead, payload);
    if (status != memory::MemoryStatus::kOk) [[unlikely]] {
      FailAnswer(host, psn, FaultOfRemote(status));
      return false;
    }
  }
  const Position position =
      PositionOf(resource.next - resource.start, resource.packets - resource.start);
  const bool has_aeth = position != Position::kMiddle;
  BuildAcknowledge(out, psn, Aeth::Ack(resource.msn, has_aeth ? GiveCredits(host) : kNoCredits));
  out.opcode =
      WithTransport(kOpcodes[static_cast<size_t>(position)], TransportOf(context_.config.type));
  out.payload_length = bytes;
  ++resource.next;
  host.Count(QpCounter::kReadResponsesSent);
  return true;
}

template <class Host>
void Responder<Host>::BuildAcknowledge(TxPacket& out, Psn psn, Aeth aeth) const {
  out.opcode = WithTransport(Opcode::kRcAcknowledge, TransportOf(context_.config.type));
  out.solicited = false;
  out.ack_request = false;
  out.fecn = false;
  out.becn = false;
  out.psn = psn;
  out.dest_qpn = context_.attributes.dest_qpn;
  out.payload_length = 0;
  out.ext.aeth = aeth;
}

// The memory of an answer is not accessible: later requests cannot be answered either.
template <class Host>
void Responder<Host>::FailAnswer(Host& host, Psn psn, RequestFault fault) {
  DropAnswers();
  const FaultInfo& info = InfoOf(fault);
  host.Count(info.counter);
  SetNak(psn, Aeth::Nak(msn_, static_cast<NakCode>(info.nak_code)).syndrome);
  host.RaiseEvent(info.event);
  context_.error_pending = true;
}

template <class Host>
void Responder<Host>::HandleTransmitFault(Host& host, Psn psn) {
  uint32_t index = 0;
  if (!FindResource(psn, index)) return;
  FailAnswer(host, psn, RequestFault::kRemoteMemory);
}

}  // namespace roci::roce
