#include "dataplane/qp/place_batch.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "dataplane/qp/queue_pair_host.h"
#include "memory/copy.h"

namespace roci::dataplane {

using memory::MemoryStatus;

MemoryStatus PlaceBatch::Add(QueuePairHost& host, const memory::SegmentList& segments,
                             std::span<const std::byte> bytes) {
  // At once, and behind what came before, unless that may take long.
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

// The worker checks HasRoom() for each packet. Only control can need more, when it moves a queue
// pair from SQE to RTS while a copy is detached: the last completions are then written out of
// order.
PlaceBatch::Deferred& PlaceBatch::NextDeferred(QueuePairHost& host, DeferredKind kind) {
  if (deferred_count_ == kMaxDeferred) [[unlikely]] {
    Deferred& last = deferred_[kMaxDeferred - 1];
    if (last.host != nullptr) {
      AppCopies* const held_in = std::exchange(last.host->held_in, nullptr);
      Tell(last);
      last.host->held_in = held_in;
    }
    --deferred_count_;
  }
  Deferred& late = deferred_[deferred_count_++];
  late.kind = kind;
  late.places = places_;
  late.host = &host;
  return late;
}

void PlaceBatch::Defer(QueuePairHost& host, CompletionQueue& cq, const roce::Completion& completion,
                       const CompletionOwner& owner, bool is_send) {
  Deferred& late = NextDeferred(host, DeferredKind::kCompletion);
  late.is_send = is_send;
  late.cq = &cq;
  late.owner = owner;
  late.completion = completion;
}

void PlaceBatch::DeferEntry(QueuePairHost& host, CompletionQueue& cq, const roci_abi_cqe& entry,
                            bool solicited) {
  Deferred& late = NextDeferred(host, DeferredKind::kEntry);
  late.solicited = solicited;
  late.cq = &cq;
  late.entry = entry;
}

void PlaceBatch::DeferEvent(QueuePairHost& host, roce::QpEvent event) {
  NextDeferred(host, DeferredKind::kEvent).event = event;
}

// The first of a queue pair's payloads that failed is the one that its peer is told of, and before
// which everything is well.
void PlaceBatch::NoteFailure(uint32_t place) {
  const Origin& origin = origins_[place];
  if (origin.host == nullptr) return;
  CopyFault& fault = origin.host->copy_fault;
  origin.host->memory_faults->Add(1);
  if (!fault.failed) fault.place = place;
  fault.place = std::min(fault.place, place);
  fault.failed = true;
  if (!origin.is_request) {
    fault.of_response = true;
    return;
  }
  if (!fault.of_request || roce::Distance(origin.psn, fault.psn) > 0) fault.psn = origin.psn;
  fault.of_request = true;
}

void PlaceBatch::Tell(Deferred& late) {
  CopyFault& fault = late.host->copy_fault;
  const bool follows_fault = fault.failed && fault.place < late.places;
  switch (late.kind) {
    case DeferredKind::kCompletion:
      if (follows_fault && late.completion.status == roce::CompletionStatus::kSuccess) {
        late.completion.status = roce::CompletionStatus::kLocalProtectionError;
        (late.is_send ? fault.send_told : fault.recv_told) = true;
      }
      late.cq->Write(late.completion, late.owner, late.is_send, *late.host->now_ns);
      break;
    case DeferredKind::kEntry:
      if (follows_fault && late.entry.status == 0) {
        late.entry.status = static_cast<uint8_t>(roce::CompletionStatus::kLocalProtectionError);
      }
      late.cq->WriteEntry(late.entry, late.solicited || late.entry.status != 0, *late.host->now_ns);
      break;
    case DeferredKind::kEvent:
      late.host->RaiseEvent(late.event);
      break;
  }
}

void PlaceBatch::Settle() {
  for (const uint32_t place : failed_) NoteFailure(place);
  for (uint32_t i = 0; i < deferred_count_; ++i) {
    if (deferred_[i].host != nullptr) Tell(deferred_[i]);
  }
  deferred_count_ = 0;
  // Whatever these queue pairs do before they are stopped comes after the fault.
  for (const uint32_t place : failed_) {
    if (origins_[place].host != nullptr) origins_[place].host->copy_fault.place = 0;
  }
  failed_ = {};
  places_ = 0;
}

void PlaceBatch::Forget(const QueuePairHost& host) {
  for (uint32_t i = 0; i < places_; ++i) {
    if (origins_[i].host == &host) origins_[i].host = nullptr;
  }
  for (uint32_t i = 0; i < deferred_count_; ++i) {
    if (deferred_[i].host == &host) deferred_[i].host = nullptr;
  }
}

}  // namespace roci::dataplane
