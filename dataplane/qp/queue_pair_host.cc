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

// The SGEs of a tagged buffer, for ResolveElements.
struct TaggedElements {
  const TaggedBuffer& buffer;
  uint32_t num_sge;
  roce::Sge ReadSge(const TaggedElements&, uint32_t i) const { return buffer.sges[i]; }
};

}  // namespace

MemoryStatus QueuePairHost::ResolveTagged(const TaggedBuffer& buffer, uint32_t offset,
                                          uint32_t length, memory::SegmentList& out) {
  const TaggedElements elements{buffer, buffer.num_sge};
  return ResolveElements(access_.recv_pd, elements, elements, offset, length,
                         memory::Access::kLocalWrite, out);
}

MemoryStatus QueuePairHost::ScatterShared(const roce::RecvWqe& wqe, uint32_t offset,
                                          uint32_t length, memory::SegmentList& out) {
  if (queues.tags != nullptr && TagReceiver::IsTagged(wqe)) {
    return queues.tags->ScatterRecv(*this, wqe, offset, length, out);
  }
  return ResolveElements(access_.recv_pd, *queues.shared, wqe, offset, length,
                         memory::Access::kLocalWrite, out);
}

void QueuePairHost::CompleteShared(const roce::Completion& completion) {
  if (queues.tags != nullptr) return queues.tags->CompleteRecv(*this, completion);
  Complete(*queues.recv_cq, completion, queues.recv_owner, false);
}

// The queue pair has failed and will be moved to ERR: no completion succeeds any more.
void QueuePairHost::CompleteBehindFault(CompletionQueue& cq, roce::Completion completion,
                                        const CompletionOwner& who, bool is_send) {
  if (completion.status == roce::CompletionStatus::kSuccess) {
    completion.status = roce::CompletionStatus::kLocalProtectionError;
    (is_send ? copying.fault.send_told : copying.fault.recv_told) = true;
  }
  cq.Write(completion, who, is_send, now_ns());
}

void QueuePairHost::CompleteOwnSend(const roce::Completion& completion) {
  queues.tags->CompleteSend(*this, completion);
}

roce::FetchResult QueuePairHost::FetchShared(roce::RecvWqe& wqe, roce::CompletionStatus& bad_status,
                                             const roce::Packet* packet) {
  // Queue pairs of a context fail when its completion queue overflows (Worker::FailUsers). One of
  // an XRC domain fails when it needs a receive that could not be completed.
  if (queues.domain != nullptr && queues.recv_cq->overflowed()) [[unlikely]] {
    queues.shared_is_broken = true;
    return roce::FetchResult::kEmpty;
  }
  const roce::FetchResult result = queues.tags != nullptr
                                       ? queues.tags->FetchRecv(*this, packet, wqe, bad_status)
                                       : queues.shared->Fetch(wqe, bad_status);
  if (queues.shared->broken()) queues.shared_is_broken = true;
  return result;
}

bool QueuePairHost::FindReceiveQueue(uint32_t number) {
  SharedReceiveQueue* found = queues.domain != nullptr
                                  ? services_.lane->receive_queues.Find(number, queues.domain)
                                  : nullptr;
  if (found == nullptr) return false;
  queues.shared = found;
  access_.keys = found->context().keys_address();
  access_.copies = &found->context().copies();
  access_.pd = access_.recv_pd = found->pd();
  queues.recv_cq = found->cq();
  queues.recv_owner.qp_handle = found->handle();
  return true;
}

MemoryStatus QueuePairHost::BindWindow(const roce::SendWqe& wqe) {
  const roce::BindWork& bind = wqe.bind;
  return access_.keys->BindWindow({.window = bind.window,
                                   .new_key = bind.new_key,
                                   .region_key = bind.region_key,
                                   .access = static_cast<memory::Access>(bind.access),
                                   .address = bind.start,
                                   .length = bind.length},
                                  Context());
}

MemoryStatus QueuePairHost::RegisterList(const roce::SendWqe& wqe) {
  return services_.context->lists().Register(*access_.keys, wqe, Context());
}

AppCopies* QueuePairHost::CopiesOfQueue(const roce::Packet& packet) const {
  if (IsHeld()) return copying.held_in;
  if (!packet.info->Has(roce::ExtHeader::kXrcEth)) return nullptr;
  const SharedReceiveQueue* named =
      services_.lane->receive_queues.Find(packet.ext.xrc.srq_number, queues.domain);
  return named != nullptr ? &named->context().copies() : nullptr;
}

MemoryStatus QueuePairHost::PlaceLater(const memory::SegmentList& segments,
                                       std::span<const std::byte> bytes) {
  // The worker parks packets meanwhile, but an XRC queue pair may have switched to another program.
  if (access_.copies->IsRunning()) [[unlikely]]
    return MemoryStatus::kFault;
  access_.copies->Hold(*queue_pair_);
  return access_.copies->places.Add(*this, segments, bytes);
}

MemoryStatus QueuePairHost::AtomicLater(const AtomicCopy& wanted, uint64_t& original) {
  if (copying.atomic.kind != AtomicCopy::Kind::kNone) {
    original = copying.atomic.original;
    copying.atomic.kind = AtomicCopy::Kind::kNone;
    return copying.atomic.status;
  }
  if (access_.copies->IsRunning()) [[unlikely]]
    return MemoryStatus::kFault;
  // If there is no room, the packet is offered again as well.
  access_.copies->AddAtomic(wanted);
  return MemoryStatus::kNotYet;
}

roce::DurableState QueuePairHost::StartDurable(roce::Key rkey, uint64_t va, uint32_t length,
                                               bool whole_region) {
  memory::DurableRange range;
  const MemoryStatus status =
      access_.keys->FindDurable(rkey.value(), Context(), va, length, whole_region, &range);
  if (status == MemoryStatus::kFault) {
    durable_ = roce::DurableState::kFailed;
  } else if (status != MemoryStatus::kOk) {
    durable_ = roce::DurableState::kNoAccess;
  } else {
    // Charged to the owner of the memory; processes that share a context share its keys.
    durable_ = services_.shard->durable->StartDurable(*queue_pair_, access_.keys, range);
  }
  return durable_;
}

void QueuePairHost::RaiseEvent(roce::QpEvent event) {
  // A program that reads the event finds the completions that led to it.
  if (IsHeld() && copying.held_in->places.DeferEvent(*this, event)) [[unlikely]]
    return;
  if (CompletionQueue* cq = queues.recv_cq != nullptr ? queues.recv_cq : queues.send_cq)
    cq->PublishBurst();
  if (services_.context == nullptr) {
    for (TargetOpening* opening : events.openings) {
      SendEvent(*opening->context, opening->user_handle, EventNumber(event), opening->async_events);
    }
    return;
  }
  SendEvent(*services_.context, events.user_handle,
            events.is_work_queue ? kEventWorkQueueFatal : EventNumber(event), events.sent);
}

void QueuePairHost::SendEvent(VerbsContext& to, uint64_t element, uint32_t type,
                              std::atomic<uint32_t>& sent) {
  if (!to.SendAsyncEvent(element, type)) return;
  services_.shard->async_events->Add(1);
  sent.store(sent.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

void QueuePairHost::CountMemoryFault() { services_.shard->memory_faults->Add(1); }

static_assert(roce::QpHost<QueuePairHost>);

}  // namespace roci::dataplane
