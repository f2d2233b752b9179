// Definitions of Requester: acknowledgements and responses. Included by qp_inl.h only.
#pragma once

#include <cstring>

#include "roce/headers.h"
#include "roce/requester.h"

namespace roci::roce {

template <class Host>
PacketEffects Requester<Host>::HandleResponse(Host& host, TimeNs now, const Packet& packet) {
  if (StepsForward(una_, packet.psn) >= StepsForward(una_, sent_end_)) [[unlikely]] {
    // Before the window: a duplicate. After it: for a request never sent (a "ghost", 9.7.6).
    return {Distance(una_, packet.psn) < 0 ? HandleStale(packet) : DropReason::kGhostAcknowledge};
  }
  if (packet.info->Has(ExtHeader::kMissing)) [[unlikely]]
    return {HandleSelectiveNak(host, now, packet)};
  PacketEffects effects;
  if (context_.reorder != nullptr && MustKeep(host, now, packet, effects)) [[unlikely]] {
    return effects;
  }
  const DropReason reason = HandleAnswer(host, now, packet);
  if (reason == DropReason::kNone && packet.info->Has(ExtHeader::kAeth) &&
      packet.ext.aeth.kind() == AethKind::kAck) [[likely]] {
    TakeCredits(packet.ext.aeth);
  }
  if (held_back_ && !credit_waiting_ && IsDrained()) [[unlikely]]
    AwaitCredit(now);
  return {.reason = reason, .early = awaits_kept_ ? ContinueKept(now) : EarlyAction::kNone};
}

template <class Host>
DropReason Requester<Host>::HandleAnswer(Host& host, TimeNs now, const Packet& packet) {
  switch (packet.info->operation) {
    case Operation::kAcknowledge:
      return HandleAcknowledge(host, now, packet.psn, packet.ext.aeth);
    case Operation::kReadResponse:
      return HandleReadResponse(host, now, packet);
    case Operation::kAtomicAcknowledge:
      return HandleAtomicResponse(host, now, packet);
    default:
      return DropReason::kUnexpectedOpcode;
  }
}

template <class Host>
DropReason Requester<Host>::HandleAcknowledge(Host& host, TimeNs now, Psn psn, Aeth aeth) {
  switch (aeth.kind()) {
    case AethKind::kAck:
      if (!AcknowledgeBefore(host, now, psn + 1)) ImplyNak(host);
      return DropReason::kNone;
    case AethKind::kRnrNak:
      return HandleRnrNak(host, now, psn, aeth.value());
    case AethKind::kNak:
      return HandleNak(host, now, psn, aeth.value());
    default:
      return DropReason::kInvalidAcknowledge;
  }
}

// Completes requests for an acknowledgement of all PSNs before `end`. False: it covers a READ or
// atomic whose response is missing, so the response is lost (an implied NAK, 9.7.5).
template <class Host>
bool Requester<Host>::AcknowledgeBefore(Host& host, TimeNs now, Psn end) {
  bool is_complete = true;
  const Psn before = una_;
  while (una_ != end && head_ != tail_) {
    SendRecord& record = At(head_);
    if (record.failed || record.packets == 0) break;  // a local operation waits for its fence
    if (InfoOf(record.wqe.opcode).work_class != WorkClass::kSegmented) {
      is_complete = false;
      break;
    }
    const uint32_t covered = StepsForward(una_, end);
    const uint32_t left = StepsForward(una_, record.first_psn + record.packets);
    if (covered < left) {
      una_ = end;
      break;
    }
    una_ += left;
    CompleteHead(host, CompletionStatus::kSuccess);
    CompleteLocals(host);
  }
  if (una_ != before) Progress(host, now, StepsForward(before, una_));
  return is_complete;
}

// `packets` more PSNs were acknowledged: loss recovery starts afresh (IBTA vol 1, 9.9.2).
template <class Host>
void Requester<Host>::Progress(Host& host, TimeNs now, uint32_t packets) {
  retries_left_ = context_.attributes.retry_count;
  rnr_retries_left_ = context_.attributes.rnr_retry;
  recovering_ = probed_tail_ = false;
  if (timer_shift_ != 0) [[unlikely]]
    ShortenTimer(now);
  if (window_ != context_.config.limits.window_packets) [[unlikely]]
    WidenWindow(packets);
  // Acknowledged beyond the next retransmission.
  if (StepsForward(una_, send_psn_) > StepsForward(una_, sent_end_)) SkipAcknowledged();
  rnr_waiting_ = false;  // the request of the RNR NAK has been acknowledged
  if (probing_) [[unlikely]] {
    // The peer has posted receives and did not say so.
    probing_ = false;
    expects_updates_ = false;
  }
  deadline_ = kNever;
  if (send_psn_ != una_) ArmTimer(now);
  if (head_ != tail_ && At(head_).failed) [[unlikely]] {
    FailHead(host, At(head_).local_status);
  }
}

template <class Host>
DropReason Requester<Host>::HandleReadResponse(Host& host, TimeNs now, const Packet& packet) {
  const OpcodeInfo& info = *packet.info;
  if (info.Has(ExtHeader::kAeth) && packet.ext.aeth.kind() != AethKind::kAck) {
    return DropReason::kInvalidAcknowledge;
  }
  if (!AcknowledgeBefore(host, now, packet.psn)) return ImplyNak(host);
  if (!HeadAwaits(WorkClass::kRead, packet.psn)) [[unlikely]] {
    return HandleConfirmation(host, now, packet);
  }
  SendRecord& record = At(head_);
  const auto bytes = static_cast<uint32_t>(packet.payload.size());
  if (!ReadResponseFits(info.position, bytes, record.received, record.wqe.length,
                        context_.mtu_shift, context_.selective)) [[unlikely]] {
    FailHead(host, CompletionStatus::kBadResponse);
    return DropReason::kPayloadLength;
  }
  const uint32_t offset = record.received << context_.mtu_shift;
  if (!PlaceResponse(host, record.wqe, offset, packet.payload)) [[unlikely]] {
    FailHead(host, CompletionStatus::kLocalProtectionError);
    return DropReason::kMemoryAccess;
  }
  ++una_;
  if (++record.received == record.packets) {
    CompleteHead(host, CompletionStatus::kSuccess);
    CompleteLocals(host);
  }
  Progress(host, now, 1);
  return DropReason::kNone;
}

// The empty READ response that answers a FLUSH or ATOMIC WRITE (IBTA vol 1, A19.4.4).
template <class Host>
DropReason Requester<Host>::HandleConfirmation(Host& host, TimeNs now, const Packet& packet) {
  if (!HeadAwaits(WorkClass::kConfirmed, packet.psn)) return DropReason::kUnexpectedOpcode;
  if (packet.info->position != Position::kOnly || !packet.payload.empty()) [[unlikely]] {
    FailHead(host, CompletionStatus::kBadResponse);
    return DropReason::kPayloadLength;
  }
  FinishHead(host, now);
  return DropReason::kNone;
}

template <class Host>
DropReason Requester<Host>::HandleAtomicResponse(Host& host, TimeNs now, const Packet& packet) {
  if (packet.ext.aeth.kind() != AethKind::kAck) return DropReason::kInvalidAcknowledge;
  if (!AcknowledgeBefore(host, now, packet.psn)) return ImplyNak(host);
  if (!HeadAwaits(WorkClass::kAtomic, packet.psn)) return DropReason::kUnexpectedOpcode;
  std::byte original[sizeof(uint64_t)];
  std::memcpy(original, &packet.ext.atomic_ack.original, sizeof(original));
  if (!PlaceResponse(host, At(head_).wqe, 0, original)) [[unlikely]] {
    FailHead(host, CompletionStatus::kLocalProtectionError);
    return DropReason::kMemoryAccess;
  }
  FinishHead(host, now);
  return DropReason::kNone;
}

// The one response to the oldest request has arrived.
template <class Host>
void Requester<Host>::FinishHead(Host& host, TimeNs now) {
  ++una_;
  CompleteHead(host, CompletionStatus::kSuccess);
  CompleteLocals(host);
  Progress(host, now, 1);
}

// Whether the oldest request is of `work_class`, has not failed, and waits for `psn`.
template <class Host>
bool Requester<Host>::HeadAwaits(WorkClass work_class, Psn psn) const {
  if (context_.error_pending || head_ == tail_ || una_ != psn) return false;
  const SendRecord& record = At(head_);
  return !record.failed && record.started && InfoOf(record.wqe.opcode).work_class == work_class;
}

template <class Host>
bool Requester<Host>::PlaceResponse(Host& host, const SendWqe& wqe, uint32_t offset,
                                    std::span<const std::byte> bytes) {
  if (bytes.empty()) return true;
  memory::SegmentList segments;
  return host.ScatterSend(wqe, offset, static_cast<uint32_t>(bytes.size()), segments) ==
             memory::MemoryStatus::kOk &&
         host.Place(segments, bytes) == memory::MemoryStatus::kOk;
}

}  // namespace roci::roce
