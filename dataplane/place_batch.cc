#include "dataplane/place_batch.h"

#include <algorithm>
#include <cstring>

#include "dataplane/queue_pair_host.h"
#include "memory/copy.h"

namespace roci::dataplane {

using memory::MemoryStatus;

MemoryStatus PlaceBatch::Add(QueuePairHost& host, const memory::SegmentList& segments,
                             std::span<const std::byte> bytes) {
  // At once, and behind what came before.
  if (segments.CopiesItself()) [[unlikely]] {
    Flush();
    return memory::CopyIn(segments, bytes);
  }
  if (places_ == kMaxPlaces || copies_.size() + segments.size() > memory::CopyBatch::kMaxPieces) {
    Flush();
  }
  if (!IsOfPayload(bytes)) {
    if (bytes.size() > kFewBytes) return memory::CopyIn(segments, bytes);
    std::memcpy(few_[places_].data(), bytes.data(), bytes.size());
    bytes = {few_[places_].data(), bytes.size()};
  }
  const MemoryStatus status = copies_.AddIn(segments, bytes, places_);
  if (status == MemoryStatus::kOk) origins_[places_++] = {&host, psn_, is_request_};
  return status;
}

void PlaceBatch::Defer(QueuePairHost& host, CompletionQueue& cq, const roce::Completion& completion,
                       const CompletionOwner& owner, bool is_send) {
  deferred_[deferred_count_++] = {&host, &cq, completion, owner, is_send, places_};
  if (deferred_count_ == kMaxDeferred) Flush();
}

// The first of a queue pair's payloads that failed is the one that its peer is told of, and before
// which everything is well.
void PlaceBatch::NoteFailure(uint32_t place) {
  const Origin& origin = origins_[place];
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

void PlaceBatch::Flush() {
  const std::span<const uint32_t> failed = copies_.Flush();
  for (const uint32_t place : failed) NoteFailure(place);
  places_ = 0;
  for (uint32_t i = 0; i < deferred_count_; ++i) {
    Deferred& late = deferred_[i];
    CopyFault& fault = late.host->copy_fault;
    if (fault.failed && fault.place < late.places &&
        late.completion.status == roce::CompletionStatus::kSuccess) {
      late.completion.status = roce::CompletionStatus::kLocalProtectionError;
      (late.is_send ? fault.send_told : fault.recv_told) = true;
    }
    late.cq->Write(late.completion, late.owner, late.is_send, *late.host->now_ns);
  }
  deferred_count_ = 0;
  // Whatever these queue pairs do before they are stopped comes after the fault.
  for (const uint32_t place : failed) origins_[place].host->copy_fault.place = 0;
}

}  // namespace roci::dataplane
