#include "dataplane/qp/place_batch.h"

#include <cassert>
#include <cstring>

#include "dataplane/qp/queue_pair_host.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/qp/tag_completion.h"
#include "dataplane/qp/tag_queue.h"
#include "memory/copy.h"

namespace roci::dataplane {

using memory::MemoryStatus;

MemoryStatus PlaceBatch::Add(QueuePairHost& host, const memory::SegmentList& segments,
                             std::span<const std::byte> bytes) {
  // At once, and after the payloads before it unless their copies may take long.
  if (segments.CopiesItself()) [[unlikely]] {
    if (!may_wait_) {
      for (const uint32_t place : copies_.Flush()) NoteFailure(place);
    }
    return memory::CopyIn(segments, bytes);
  }
  assert(places_ < kMaxPlaces);
  if (!IsOfPayload(bytes)) {
    if (bytes.size() > kFewBytes) return memory::CopyIn(segments, bytes);
    std::memcpy(few_[places_].data(), bytes.data(), bytes.size());
    bytes = {few_[places_].data(), bytes.size()};
  }
  const MemoryStatus status = copies_.AddIn(segments, bytes, places_);
  if (status == MemoryStatus::kOk) origins_[places_++] = {&host, psn_, is_request_};
  return status;
}

// The worker checks HasRoom() for each packet, so only flushes of work queues exceed the room: by
// control, or because requests fail. A flushed completion depends on no copy. Those that the work
// queue has deferred before it are written first, to keep the order; they become flushes too, as
// their payload may not be in memory yet.
bool PlaceBatch::HasRoomToDefer(const QueuePairHost& host, bool is_send) {
  if (deferred_count_ != kMaxDeferred) [[likely]]
    return true;
  if (flushed_ == &host && flushed_sends_ == is_send) return false;
  for (Deferred& late : deferred_) {
    if (late.host != &host || late.kind == DeferredKind::kEvent || late.is_send != is_send) {
      continue;
    }
    MakeFlushed(late);
    Report(late);
    late.host = nullptr;
  }
  flushed_ = &host;
  flushed_sends_ = is_send;
  return false;
}

PlaceBatch::Deferred& PlaceBatch::NextDeferred(QueuePairHost& host, DeferredKind kind) {
  Deferred& late = deferred_[deferred_count_++];
  late.kind = kind;
  late.is_send = false;
  late.places = places_;
  late.host = &host;
  return late;
}

bool PlaceBatch::Defer(QueuePairHost& host, CompletionQueue& cq, const roce::Completion& completion,
                       const CompletionOwner& owner, bool is_send) {
  if (!HasRoomToDefer(host, is_send)) [[unlikely]]
    return false;
  Deferred& late = NextDeferred(host, DeferredKind::kCompletion);
  late.is_send = is_send;
  late.cq = &cq;
  late.owner = owner;
  late.completion = completion;
  return true;
}

bool PlaceBatch::DeferEntry(QueuePairHost& host, CompletionQueue& cq, const roci_abi_cqe& entry,
                            bool solicited) {
  if (!HasRoomToDefer(host, /*is_send=*/false)) [[unlikely]]
    return false;
  Deferred& late = NextDeferred(host, DeferredKind::kEntry);
  late.solicited = solicited;
  late.cq = &cq;
  late.entry = entry;
  return true;
}

bool PlaceBatch::DeferEvent(QueuePairHost& host, roce::QpEvent event) {
  if (deferred_count_ == kMaxDeferred) [[unlikely]]
    return false;
  NextDeferred(host, DeferredKind::kEvent).event = event;
  return true;
}

// A success becomes a flush. An entry that reports a tag match alone stays as it is.
void PlaceBatch::MakeFlushed(Deferred& late) {
  constexpr auto kFlushed = roce::CompletionStatus::kWorkRequestFlushed;
  if (late.kind == DeferredKind::kCompletion) {
    if (late.completion.status != roce::CompletionStatus::kSuccess) return;
    late.completion.status = kFlushed;
    // The program counts only successful completions.
    if (late.completion.opcode != roce::CompletionOpcode::kTagRecv) return;
    late.host->shared_queue()->tags()->list(late.host->OnThisShard()).TakeBackUnexpected();
  } else if (late.entry.status == 0 && (late.entry.flags & ROCI_ABI_CQE_TAG_DATA_VALID) != 0) {
    FailTagCompletion(late.entry, kFlushed);
  }
}

void PlaceBatch::NoteFailure(uint32_t place) {
  const Origin& origin = origins_[place];
  if (origin.host == nullptr) return;
  origin.host->CountMemoryFault();
  origin.host->copy_state().fault().Add(place, origin.psn, origin.is_request);
}

void PlaceBatch::Report(Deferred& late) {
  CopyFault& fault = late.host->copy_state().fault();
  const bool follows_fault = fault.Precedes(late.places);
  switch (late.kind) {
    case DeferredKind::kCompletion:
      if (!fault.failed()) {
        late.host->WriteWithFaults(*late.cq, late.completion, late.owner, late.is_send);
        break;
      }
      if (follows_fault) fault.ReportIn(late.completion, late.is_send);
      late.host->WriteTraced(*late.cq, late.completion, late.owner, late.is_send);
      break;
    case DeferredKind::kEntry:
      if (follows_fault && late.entry.status == 0) {
        FailTagCompletion(late.entry, fault.later_status());
      }
      late.cq->WriteEntry(late.host->OnThisShard(), late.entry,
                          late.solicited || late.entry.status != 0, late.host->now_ns());
      break;
    case DeferredKind::kEvent:
      late.host->RaiseEvent(late.event);
      break;
  }
}

// Drops a deferred completion or event. A receive WQE returns to its shared receive queue. Entries
// of a tagged buffer, which belongs to that queue too, are written.
void PlaceBatch::Drop(Deferred& late) {
  SharedReceiveQueue* srq = late.host->shared_queue();
  if (srq == nullptr || late.kind == DeferredKind::kEvent || late.is_send) return;
  MakeFlushed(late);
  if (late.kind == DeferredKind::kEntry) return Report(late);
  roce::RecvWqe wqe{};
  wqe.slot = late.completion.slot;
  srq->GiveBack(late.host->OnThisShard(), wqe);
}

void PlaceBatch::Settle() {
  for (const uint32_t place : failed_) NoteFailure(place);
  for (uint32_t i = 0; i < deferred_count_; ++i) {
    if (deferred_[i].host != nullptr) Report(deferred_[i]);
  }
  deferred_count_ = 0;
  flushed_ = nullptr;
  for (const uint32_t place : failed_) {
    if (origins_[place].host != nullptr) origins_[place].host->copy_state().fault().EndBatch();
  }
  failed_ = {};
  places_ = 0;
}

void PlaceBatch::Forget(const QueuePairHost& host) {
  for (uint32_t i = 0; i < places_; ++i) {
    if (origins_[i].host == &host) origins_[i].host = nullptr;
  }
  for (uint32_t i = 0; i < deferred_count_; ++i) {
    Deferred& late = deferred_[i];
    if (late.host != &host) continue;
    Drop(late);
    late.host = nullptr;
  }
}

void PlaceBatch::ForgetReceives(const QueuePairHost& host) {
  for (uint32_t i = 0; i < deferred_count_; ++i) {
    Deferred& late = deferred_[i];
    if (late.host == &host && late.kind == DeferredKind::kCompletion) late.host = nullptr;
  }
}

}  // namespace roci::dataplane
