#include "dataplane/qp/queue_pair_host.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <optional>
#include <utility>

#include "dataplane/qp/completion_fault.h"
#include "dataplane/qp/early_frames.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/receive_queue_table.h"
#include "dataplane/qp/shard_view.h"
#include "dataplane/qp/tag_receiver.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/rings/trace.h"
#include "dataplane/types/target_opening.h"

namespace roci::dataplane {

using memory::MemoryStatus;

template <class Queue, class Wqe>
MemoryStatus QueuePairHost::ResolveElements(uint32_t domain_pd, const Queue& queue, const Wqe& wqe,
                                            uint32_t offset, uint32_t length, memory::Access need,
                                            memory::SegmentList& out) {
  const uint32_t size_before = out.size();
  uint32_t skip = offset;
  MemoryStatus status = MemoryStatus::kOk;
  for (uint32_t i = 0; i < wqe.num_sge && length != 0 && status == MemoryStatus::kOk; ++i) {
    const roce::Sge sge = queue.ReadSge(wqe, i);
    if (skip >= sge.length) {
      skip -= sge.length;
      continue;
    }
    const uint32_t part = std::min(length, sge.length - skip);
    status = ResolveLocal(domain_pd, sge, skip, part, need, out);
    length -= part;
    skip = 0;
  }
  if (status == MemoryStatus::kOk && length != 0) status = MemoryStatus::kOutOfBounds;
  if (status != MemoryStatus::kOk) [[unlikely]]
    out.Truncate(size_before);
  return status;
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

// The same of a receive of a shared queue.
struct SharedElements {
  const SharedReceiveQueue& queue;
  const OnShard& shard;
  roce::Sge ReadSge(const roce::RecvWqe& wqe, uint32_t i) const {
    return queue.ReadSge(shard, wqe, i);
  }
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
  if (queues_.tags != nullptr && TagReceiver::IsTagged(wqe)) {
    return queues_.tags->ScatterRecv(*this, wqe, offset, length, out);
  }
  const SharedElements elements{*queues_.shared, OnThisShard()};
  return ResolveElements(access_.recv_pd, elements, wqe, offset, length,
                         memory::Access::kLocalWrite, out);
}

void QueuePairHost::CompleteShared(const roce::Completion& completion) {
  if (queues_.tags != nullptr) return queues_.tags->CompleteRecv(*this, completion);
  Complete(*queues_.recv_cq, completion, queues_.recv_owner, false);
}

// A queue pair that has failed will be moved to ERR: none of its completions succeeds any more.
void QueuePairHost::CompleteSpecially(CompletionQueue& cq, roce::Completion completion,
                                      const CompletionOwner& who, bool is_send) {
  if (!copy_state_.fault().failed()) return WriteWithFaults(cq, completion, who, is_send);
  copy_state_.fault().ReportIn(completion, is_send);
  WriteTraced(cq, completion, who, is_send);
}

// With the vendor error that the device has for the status.
void QueuePairHost::WriteStatus(CompletionQueue& cq, const roce::Completion& completion,
                                const CompletionOwner& who, bool is_send) {
  cq.WriteChanged(OnThisShard(), completion, who, is_send, now_ns(),
                  {.vendor_error = VendorErrorOf(completion.status)});
}

uint32_t QueuePairHost::VendorErrorOf(roce::CompletionStatus status) const {
  const VendorErrors* const errors = services_.lane->vendor_errors;
  return (errors != nullptr ? *errors : kPlainVendorErrors)[static_cast<size_t>(status)];
}

void QueuePairHost::WriteWithFaults(CompletionQueue& cq, roce::Completion completion,
                                    const CompletionOwner& who, bool is_send) {
  const CompletionFaultSettings* const hit = FindFault(cq, completion);
  if (hit == nullptr) return WriteTraced(cq, completion, who, is_send);
  if (hit->overflows) return cq.LoseEntry(OnThisShard());
  if (hit->status != roce::CompletionStatus::kSuccess) {
    completion.status = hit->status;
    copy_state_.fault().Inject(is_send);
  }
  cq.WriteChanged(OnThisShard(), completion, who, is_send, now_ns(),
                  {.vendor_error = hit->vendor_error.value_or(VendorErrorOf(completion.status)),
                   .delay_ns = hit->delay_ns,
                   .loses_event = hit->loses_event});
  RecordCompletion(cq, completion, is_send,
                   hit->vendor_error.value_or(VendorErrorOf(completion.status)));
}

void QueuePairHost::WriteTraced(CompletionQueue& cq, const roce::Completion& completion,
                                const CompletionOwner& who, bool is_send) {
  WriteStatus(cq, completion, who, is_send);
  RecordCompletion(cq, completion, is_send, VendorErrorOf(completion.status));
}

// A queue that has overflowed takes no entries.
void QueuePairHost::RecordCompletion(const CompletionQueue& cq, const roce::Completion& completion,
                                     bool is_send, uint32_t vendor_error) const {
  LaneTrace* const trace = services_.lane->trace;
  if (trace == nullptr || cq.overflowed()) return;
  TraceRecord* const record = trace->Begin(TraceKind::kCompletion, qpn().value());
  if (record == nullptr) return;
  TraceCompletion& out = record->completion;
  out.wr_id = completion.wr_id;
  out.byte_length = completion.byte_length;
  out.immediate = completion.immediate;
  out.vendor_error = vendor_error;
  out.source_qpn = completion.source_qpn.value();
  out.status = static_cast<uint8_t>(completion.status);
  out.opcode = static_cast<uint8_t>(completion.opcode);
  out.is_send = is_send;
  out.has_immediate = completion.has_immediate;
  out.has_invalidate = completion.has_invalidate;
  trace->Publish();
}

void QueuePairHost::RecordState(roce::QpState from, roce::QpState to) const {
  services_.lane->trace->AddState(qpn().value(), from, to);
}

// The core counts before it uses up a retry.
void QueuePairHost::RecordTimer(roce::QpCounter counter) const {
  LaneTrace& trace = *services_.lane->trace;
  TraceRecord* const record = trace.Begin(TraceKind::kTimer, qpn().value());
  if (record == nullptr) return;
  const QueuePairInfo info = queue_pair_->Inspect(OnThisShard());
  const bool is_rnr = counter == roce::QpCounter::kRnrNaksReceived;
  const uint8_t left =
      is_rnr ? info.debug.requester.rnr_retries_left : info.debug.requester.retries_left;
  TraceTimer& out = record->timer;
  out.most = is_rnr ? info.attributes.rnr_retry : info.attributes.retry_count;
  const bool is_last = left == 0 && !(is_rnr && out.most == roce::kRetryForEver);
  out.retry = static_cast<uint8_t>(is_last ? 0 : out.most - left + 1);
  out.is_rnr = is_rnr;
  trace.Publish();
}

const CompletionFaultSettings* QueuePairHost::FindFault(const CompletionQueue& cq,
                                                        const roce::Completion& completion) const {
  if (completion.status != roce::CompletionStatus::kSuccess) return nullptr;
  for (CompletionFault* fault : services_.lane->completion_faults) {
    const bool solicited =
        completion.solicited || fault->settings.status != roce::CompletionStatus::kSuccess;
    const bool raises_event = cq.RaisesEvent(OnThisShard(), solicited);
    if (fault->Hits(qpn(), queue_pair_->origin(), completion.opcode, raises_event, now_ns())) {
      return &fault->settings;
    }
  }
  return nullptr;
}

void QueuePairHost::CompleteOwnSend(const roce::Completion& completion) {
  queues_.tags->CompleteSend(*this, completion);
}

roce::FetchResult QueuePairHost::FetchShared(roce::RecvWqe& wqe, roce::CompletionStatus& bad_status,
                                             const roce::Packet* packet) {
  // Queue pairs of a context fail when its completion queue overflows (Worker::FailUsers). One of
  // an XRC domain fails when it needs a receive that could not be completed.
  if (queues_.domain != nullptr && queues_.recv_cq->overflowed()) [[unlikely]] {
    queues_.shared_is_broken = true;
    return roce::FetchResult::kEmpty;
  }
  const roce::FetchResult result = queues_.tags != nullptr
                                       ? queues_.tags->FetchRecv(*this, packet, wqe, bad_status)
                                       : queues_.shared->Fetch(OnThisShard(), wqe, bad_status);
  if (queues_.shared->broken(OnThisShard())) queues_.shared_is_broken = true;
  return result;
}

bool QueuePairHost::FindReceiveQueue(uint32_t number) {
  SharedReceiveQueue* found = queues_.domain != nullptr ? services_.lane->receive_queues.Find(
                                                              OnThisShard(), number, queues_.domain)
                                                        : nullptr;
  if (found == nullptr) return false;
  queues_.shared = found;
  access_.keys = found->context().keys_address();
  access_.copies = &found->context().copies();
  access_.pd = access_.recv_pd = found->pd();
  queues_.recv_cq = found->cq();
  queues_.recv_owner.qp_handle = found->handle();
  return true;
}

void QueuePairHost::ForgetReceiveQueue(const SharedReceiveQueue& queue) {
  if (queues_.shared != &queue) return;
  if (IsHeld()) HeldPlaces().ForgetReceives(*this);
  queues_.shared = nullptr;
  access_.keys = nullptr;
  access_.copies = nullptr;
  queues_.recv_cq = nullptr;
}

bool QueuePairHost::HasRoomToKeep() const {
  return services_.shard->early->HasRoom(OnThisShard(), queue_pair_->early(OnThisShard()));
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
  return services_.context->lists(OnThisShard())
      .Register(OnThisShard(), *access_.keys, wqe, Context());
}

AppCopies* QueuePairHost::CopiesOfQueue(const roce::Packet& packet) const {
  if (IsHeld()) return copy_state_.held_by();
  if (!packet.info->Has(roce::ExtHeader::kXrcEth)) return nullptr;
  const SharedReceiveQueue* named =
      services_.lane->receive_queues.Find(OnThisShard(), packet.ext.xrc.srq_number, queues_.domain);
  return named != nullptr ? &named->context().copies() : nullptr;
}

MemoryStatus QueuePairHost::PlaceLater(const memory::SegmentList& segments,
                                       std::span<const std::byte> bytes) {
  // The worker parks packets meanwhile, but an XRC queue pair may have switched to another program.
  if (access_.copies->IsRunning(OnThisShard())) [[unlikely]]
    return MemoryStatus::kFault;
  access_.copies->Hold(OnThisShard(), *queue_pair_);
  return access_.copies->places(OnThisShard()).Add(*this, segments, bytes);
}

MemoryStatus QueuePairHost::AtomicLater(const AtomicCopy& wanted, uint64_t& original) {
  if (const std::optional<memory::AtomicResult> done = copy_state_.TakeAtomic()) {
    original = done->original;
    return done->status;
  }
  if (access_.copies->IsRunning(OnThisShard())) [[unlikely]]
    return MemoryStatus::kFault;
  // If there is no room, the packet is offered again as well.
  access_.copies->AddAtomic(OnThisShard(), wanted);
  return MemoryStatus::kNotYet;
}

MemoryStatus QueuePairHost::AtomicCompareSwap(const memory::Segment& segment, uint64_t compare,
                                              uint64_t swap, uint64_t& original) {
  if (copy_state_.fault().failed()) [[unlikely]]
    return MemoryStatus::kFault;
  if (IsRemote(segment)) {
    return AtomicLater({.kind = AtomicCopy::Kind::kCompareSwap,
                        .host = this,
                        .segment = segment,
                        .operand = compare,
                        .swap = swap},
                       original);
  }
  const memory::AtomicResult result = memory::CompareAndSwap(segment, compare, swap);
  original = result.original;
  return result.status;
}

MemoryStatus QueuePairHost::AtomicFetchAdd(const memory::Segment& segment, uint64_t add,
                                           uint64_t& original) {
  if (copy_state_.fault().failed()) [[unlikely]]
    return MemoryStatus::kFault;
  if (IsRemote(segment)) {
    return AtomicLater(
        {.kind = AtomicCopy::Kind::kFetchAdd, .host = this, .segment = segment, .operand = add},
        original);
  }
  const memory::AtomicResult result = memory::FetchAndAdd(segment, add);
  original = result.original;
  return result.status;
}

MemoryStatus QueuePairHost::AtomicWrite(const memory::Segment& segment,
                                        std::span<const std::byte, 8> bytes) {
  if (copy_state_.fault().failed()) [[unlikely]]
    return MemoryStatus::kFault;
  if (!IsRemote(segment)) return memory::AtomicWrite(segment, bytes);
  AtomicCopy write{.kind = AtomicCopy::Kind::kWrite, .host = this, .segment = segment};
  std::memcpy(&write.operand, bytes.data(), bytes.size());
  uint64_t ignored;
  return AtomicLater(write, ignored);
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
    durable_ = range.count == 0 ? roce::DurableState::kDone : RequestDurable(range);
  }
  return durable_;
}

roce::DurableState QueuePairHost::RequestDurable(memory::DurableRange& range) {
  DurableRequest& request = *services_.shard->durable;
  assert(request.charged_to == nullptr);
  // Charged to the owner of the memory; processes that share a context share its keys.
  request.charged_to = access_.keys;
  request.range = std::exchange(range, {});
  effects_.AddDurable();
  return roce::DurableState::kRunning;
}

void QueuePairHost::RaiseEvent(roce::QpEvent event) {
  if (IsHeld() && HeldPlaces().DeferEvent(*this, event)) [[unlikely]]
    return;
  effects_.AddEvent(event);
}

static_assert(roce::QpHost<QueuePairHost>);

}  // namespace roci::dataplane
