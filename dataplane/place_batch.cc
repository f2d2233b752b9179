#include "dataplane/place_batch.h"

#include <cstring>

#include "dataplane/queue_pair_host.h"
#include "memory/copy.h"

namespace roci::dataplane {

using memory::MemoryStatus;

MemoryStatus PlaceBatch::Add(QueuePairHost& host, const memory::SegmentList& segments,
                             std::span<const std::byte> bytes) {
  if (places_ == kMaxPlaces || copies_.size() + segments.size() > memory::CopyBatch::kMaxPieces) {
    Flush();
  }
  if (!IsOfPayload(bytes)) {
    if (bytes.size() > kFewBytes) return memory::CopyIn(segments, bytes);
    std::memcpy(few_[places_].data(), bytes.data(), bytes.size());
    bytes = {few_[places_].data(), bytes.size()};
  }
  const MemoryStatus status = copies_.AddIn(segments, bytes, places_);
  if (status == MemoryStatus::kOk) hosts_[places_++] = &host;
  return status;
}

void PlaceBatch::Defer(QueuePairHost& host, CompletionQueue& cq, const roce::Completion& completion,
                       bool is_send) {
  deferred_[deferred_count_++] = {&host, &cq, completion, is_send};
  if (deferred_count_ == kMaxDeferred) Flush();
}

void PlaceBatch::Flush() {
  for (const uint32_t failed : copies_.Flush()) {
    hosts_[failed]->memory_faults->Add(1);
    hosts_[failed]->copy_failed = true;
  }
  places_ = 0;
  for (uint32_t i = 0; i < deferred_count_; ++i) {
    Deferred& late = deferred_[i];
    if (late.host->copy_failed && late.completion.status == roce::CompletionStatus::kSuccess) {
      late.completion.status = roce::CompletionStatus::kLocalProtectionError;
    }
    late.cq->Write(late.completion, late.host->owner, late.is_send, *late.host->now_ns);
  }
  deferred_count_ = 0;
}

}  // namespace roci::dataplane
