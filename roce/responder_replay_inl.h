// Duplicate requests at a responder, and the answers that they repeat (IBTA vol 1, 9.7.4.1
// and 9.7.5). Included by qp_inl.h only.
#pragma once

#include "roce/responder.h"

namespace roci::roce {

// IBTA vol 1, 9.7.4.1 and 9.7.5: a duplicate SEND or WRITE is acknowledged and not executed; a READ
// is executed again; atomics, FLUSH and ATOMIC WRITE repeat their answer.
template <class Host>
DropReason Responder<Host>::HandleDuplicate(Host& host, const Packet& packet) {
  host.Count(QpCounter::kDuplicateRequest);
  switch (packet.info->operation) {
    case Operation::kSend:
    case Operation::kWrite:
      ack_pending_ = true;
      ack_asked_psn_ = packet.psn;
      return DropReason::kNone;
    case Operation::kReadRequest:
      return ReplayRead(packet);
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      return ReplayAtomic(packet);
    case Operation::kFlush:
    case Operation::kAtomicWrite:
      return ReplayConfirmation(packet);
    default:
      return DropReason::kStaleDuplicate;
  }
}

template <class Host>
bool Responder<Host>::FindResource(Psn psn, uint32_t& index) const {
  for (uint32_t i = end_; i != oldest_; --i) {
    const ResponderResource& resource = At(i - 1);
    if (InWindow(psn, resource.first_psn, resource.packets)) {
      index = i - 1;
      return true;
    }
  }
  return false;
}

// A retried READ may start anywhere in the original READ. It must name the same memory, since only
// that was checked.
template <class Host>
DropReason Responder<Host>::ReplayRead(const Packet& packet) {
  uint32_t index = 0;
  if (!FindResource(packet.psn, index)) return DropReason::kStaleDuplicate;
  ResponderResource& resource = At(index);
  const uint32_t skip = StepsForward(resource.first_psn, packet.psn);
  const uint32_t offset = skip << context_.mtu_shift;
  const Reth& reth = packet.ext.reth;
  if (resource.kind != AnswerKind::kRead || reth.va != resource.va + offset ||
      reth.rkey != resource.rkey) {
    return DropReason::kStaleDuplicate;
  }
  if (context_.selective && MustReplay(resource, packet, skip)) {
    return AddReplay(index, skip, skip + PacketsOf(reth.length, context_.mtu_shift));
  }
  if (reth.length != resource.length - offset) return DropReason::kStaleDuplicate;
  Rearm(resource, index, skip);
  return DropReason::kNone;
}

// Selective repeat: whether a retried READ asks for a part that ends before the READ does. The rest
// of a READ replaces what is still to be sent of it: when the peer has it, the READ is over.
template <class Host>
bool Responder<Host>::MustReplay(const ResponderResource& resource, const Packet& packet,
                                 uint32_t skip) const {
  const uint32_t left = resource.length - (skip << context_.mtu_shift);
  const uint32_t length = packet.ext.reth.length;
  return length != 0 && length < left && (length & (context_.mtu_bytes() - 1)) == 0;
}

// Without room the part is dropped: the peer asks for it again.
template <class Host>
DropReason Responder<Host>::AddReplay(uint32_t index, uint32_t start, uint32_t end) {
  ReorderState& state = *context_.reorder;
  if (!replaying_) state.replay_count = 0;
  if (state.replay_count == kMostRereads) return DropReason::kStaleDuplicate;
  state.replays[state.replay_count++] = {index, start, start, end};
  replaying_ = true;
  return DropReason::kNone;
}

template <class Host>
DropReason Responder<Host>::ReplayAtomic(const Packet& packet) {
  uint32_t index = 0;
  if (!FindResource(packet.psn, index) || At(index).kind != AnswerKind::kAtomic) {
    return DropReason::kStaleDuplicate;
  }
  Rearm(At(index), index, 0);
  return DropReason::kNone;
}

template <class Host>
DropReason Responder<Host>::ReplayConfirmation(const Packet& packet) {
  uint32_t index = 0;
  if (!FindResource(packet.psn, index) ||
      (At(index).kind != AnswerKind::kConfirmation && At(index).kind != AnswerKind::kDurable)) {
    return DropReason::kStaleDuplicate;
  }
  Rearm(At(index), index, 0);
  return DropReason::kNone;
}

template <class Host>
void Responder<Host>::Rearm(ResponderResource& resource, uint32_t index, uint32_t next) {
  resource.next = next;
  resource.start = next;
  resource.pending = true;
  if (static_cast<int32_t>(index - emit_) >= 0) return;
  emit_ = index;
  waits_for_durable_ = false;
}

}  // namespace roci::roce
