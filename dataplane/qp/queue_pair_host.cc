#include "dataplane/qp/queue_pair_host.h"

#include <algorithm>

#include "dataplane/base/async_event.h"
#include "dataplane/qp/receive_queue_table.h"
#include "dataplane/qp/shard_services.h"
#include "dataplane/qp/tag_receiver.h"
#include "dataplane/qp/target_opening.h"
#include "dataplane/qp/verbs_context.h"

namespace roci::dataplane {

using memory::MemoryStatus;

template <class Queue, class Wqe>
MemoryStatus QueuePairHost::ResolveElements(uint32_t domain_pd, const Queue& queue, const Wqe& wqe,
                                            uint32_t offset, uint32_t length, memory::Access need,
                                            memory::SegmentList& out) {
  uint32_t skip = offset;
  for (uint32_t i = 0; i < wqe.num_sge && length != 0; ++i) {
    const roce::Sge sge = queue.ReadSge(wqe, i);
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const uint32_t part = std::min(length, sge.length - skip);
    const MemoryStatus status = ResolveLocal(domain_pd, sge, skip, part, need, out);
    if (status != MemoryStatus::kOk) return status;
    length -= part;
    skip = 0;
  }
  return length == 0 ? MemoryStatus::kOk : MemoryStatus::kOutOfBounds;
}

template MemoryStatus QueuePairHost::ResolveElements(uint32_t, const SendQueue&,
                                                     const roce::SendWqe&, uint32_t, uint32_t,
                                                     memory::Access, memory::SegmentList&);
template MemoryStatus QueuePairHost::ResolveElements(uint32_t, const RecvQueue&,
                                                     const roce::RecvWqe&, uint32_t, uint32_t,
                                                     memory::Access, memory::SegmentList&);

namespace {

// The elements of a tagged buffer in the form that ResolveElements walks over.
struct TaggedElements {
  const TaggedBuffer& buffer;
  uint32_t num_sge;
  roce::Sge ReadSge(const TaggedElements&, uint32_t i) const { return buffer.sges[i]; }
};

}  // namespace

MemoryStatus QueuePairHost::ResolveTagged(const TaggedBuffer& buffer, uint32_t offset,
                                          uint32_t length, memory::SegmentList& out) {
  const TaggedElements elements{buffer, buffer.num_sge};
  return ResolveElements(recv_pd, elements, elements, offset, length, memory::Access::kLocalWrite,
                         out);
}

MemoryStatus QueuePairHost::ScatterShared(const roce::RecvWqe& wqe, uint32_t offset,
                                          uint32_t length, memory::SegmentList& out) {
  if (tags != nullptr && TagReceiver::IsTagged(wqe)) {
    return tags->ScatterRecv(*this, wqe, offset, length, out);
  }
  return ResolveElements(recv_pd, *srq, wqe, offset, length, memory::Access::kLocalWrite, out);
}

void QueuePairHost::CompleteShared(const roce::Completion& completion) {
  if (tags != nullptr) return tags->CompleteRecv(*this, completion);
  Complete(*recv_cq, completion, recv_owner, false);
}

// The queue pair is lost, and has not been told yet: nothing of it succeeds any more.
void QueuePairHost::CompleteBehindFault(CompletionQueue& cq, roce::Completion completion,
                                        const CompletionOwner& who, bool is_send) {
  if (completion.status == roce::CompletionStatus::kSuccess) {
    completion.status = roce::CompletionStatus::kLocalProtectionError;
    (is_send ? copy_fault.send_told : copy_fault.recv_told) = true;
  }
  cq.Write(completion, who, is_send, *now_ns);
}

void QueuePairHost::CompleteOwnSend(const roce::Completion& completion) {
  tags->CompleteSend(*this, completion);
}

roce::FetchResult QueuePairHost::FetchShared(roce::RecvWqe& wqe, roce::CompletionStatus& bad_status,
                                             const roce::Packet* packet) {
  // Queue pairs of a session are failed when its completion queue overflows (Worker::FailUsers);
  // one that belongs to no session, when it needs a receive that could not be completed.
  if (domain != nullptr && recv_cq->overflowed()) [[unlikely]] {
    shared_broken = true;
    return roce::FetchResult::kEmpty;
  }
  const roce::FetchResult result = tags != nullptr ? tags->FetchRecv(*this, packet, wqe, bad_status)
                                                   : srq->Fetch(wqe, bad_status);
  if (srq->broken()) shared_broken = true;
  return result;
}

bool QueuePairHost::FindReceiveQueue(uint32_t number) {
  SharedReceiveQueue* found = domain != nullptr ? receive_queues->Find(number, domain) : nullptr;
  if (found == nullptr) return false;
  srq = found;
  keys = found->context().keys_address();
  copies = &found->context().copies();
  pd = recv_pd = found->pd();
  recv_cq = found->cq();
  recv_owner.qp_handle = found->handle();
  return true;
}

MemoryStatus QueuePairHost::BindWindow(const roce::SendWqe& wqe) {
  const roce::BindWork& bind = wqe.bind;
  return keys->BindWindow({.window = bind.window,
                           .new_key = bind.new_key,
                           .region_key = bind.region_key,
                           .access = static_cast<memory::Access>(bind.access),
                           .address = bind.start,
                           .length = bind.length},
                          Context());
}

MemoryStatus QueuePairHost::RegisterList(const roce::SendWqe& wqe) {
  return context->lists().Register(*keys, wqe, Context());
}

AppCopies* QueuePairHost::CopiesOfQueue(const roce::Packet& packet) const {
  if (IsHeld()) return held_in;
  if (!packet.info->Has(roce::ExtHeader::kXrcEth)) return nullptr;
  const SharedReceiveQueue* named = receive_queues->Find(packet.ext.xrc.srq_number, domain);
  return named != nullptr ? &named->context().copies() : nullptr;
}

MemoryStatus QueuePairHost::PlaceLater(const memory::SegmentList& segments,
                                       std::span<const std::byte> bytes) {
  // The worker keeps packets away meanwhile; an XRC queue pair may have turned to another program.
  if (copies->IsRunning()) [[unlikely]]
    return MemoryStatus::kFault;
  copies->Hold(*queue_pair);
  return copies->places.Add(*this, segments, bytes);
}

MemoryStatus QueuePairHost::AtomicLater(const AtomicCopy& wanted, uint64_t& original) {
  if (atomic.kind != AtomicCopy::Kind::kNone) {
    original = atomic.original;
    atomic.kind = AtomicCopy::Kind::kNone;
    return atomic.status;
  }
  if (copies->IsRunning()) [[unlikely]]
    return MemoryStatus::kFault;
  wants_packet_again = true;
  copies->AddAtomic(wanted);
  return MemoryStatus::kNotYet;
}

roce::DurableState QueuePairHost::StartDurable(roce::Key rkey, uint64_t va, uint32_t length,
                                               bool whole_region) {
  memory::DurableRange range;
  const MemoryStatus status =
      keys->FindDurable(rkey.value(), Context(), va, length, whole_region, &range);
  if (status == MemoryStatus::kFault) {
    durable = roce::DurableState::kFailed;
  } else if (status != MemoryStatus::kOk) {
    durable = roce::DurableState::kNoAccess;
  } else {
    // Charged are those whose memory it is: processes that share a context are one.
    durable = shard->durable->StartDurable(*queue_pair, keys, range);
  }
  return durable;
}

void QueuePairHost::RaiseEvent(roce::QpEvent event) {
  // A program that hears of the event finds the completions of what led to it.
  if (IsHeld() && held_in->places.DeferEvent(*this, event)) [[unlikely]]
    return;
  if (CompletionQueue* cq = recv_cq != nullptr ? recv_cq : send_cq) cq->PublishBurst();
  if (context == nullptr) {
    for (TargetOpening* opening : openings) {
      SendEvent(*opening->context, opening->user_handle, EventNumber(event), opening->async_events);
    }
    return;
  }
  SendEvent(*context, user_handle, is_work_queue ? kEventWorkQueueFatal : EventNumber(event),
            async_events);
}

void QueuePairHost::SendEvent(VerbsContext& to, uint64_t element, uint32_t type,
                              std::atomic<uint32_t>& sent) {
  if (!to.SendAsyncEvent(element, type)) return;
  shard->async_events->Add(1);
  sent.store(sent.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

static_assert(roce::QpHost<QueuePairHost>);

}  // namespace roci::dataplane
