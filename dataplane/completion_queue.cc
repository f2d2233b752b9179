#include "dataplane/completion_queue.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "absl/status/status.h"
#include "dataplane/async_event.h"
#include "dataplane/session.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {
namespace {

size_t RingBytes(uint32_t capacity) {
  return CompletionQueue::kEntriesOffset + size_t{capacity} * sizeof(roci_abi_cqe);
}

uint32_t GenerationOf(uint32_t index, uint32_t capacity_shift) {
  return (index >> capacity_shift) + 1;
}

}  // namespace

static_assert(CompletionQueue::kEntriesOffset == sizeof(roci_abi_cq));

absl::StatusOr<std::unique_ptr<CompletionQueue>> CompletionQueue::Create(Session& session,
                                                                         CompletionEvents& events,
                                                                         uint32_t entries,
                                                                         uint64_t user_handle,
                                                                         int channel) {
  absl::StatusOr<SharedMemory> memory = CreateRing(entries);
  if (!memory.ok()) return memory.status();
  std::unique_ptr<CompletionQueue> cq(new CompletionQueue(session, events, user_handle, channel));
  cq->memory_ = *std::move(memory);
  cq->UseRing(std::bit_ceil(entries));
  return cq;
}

absl::StatusOr<SharedMemory> CompletionQueue::CreateRing(uint32_t entries) {
  if (entries < 1 || entries > kMaxEntries) {
    return absl::InvalidArgumentError("completion queue: number of entries");
  }
  return SharedMemory::Create("roci-cq", RingBytes(std::bit_ceil(entries)));
}

void CompletionQueue::UseRing(uint32_t capacity) {
  header_ = reinterpret_cast<roci_abi_cq*>(memory_.data());
  entries_ = reinterpret_cast<roci_abi_cqe*>(memory_.data() + kEntriesOffset);
  capacity_ = capacity;
  capacity_shift_ = static_cast<uint32_t>(std::countr_zero(capacity));
}

// The ring looks full: believe the app's index if it is possible.
bool CompletionQueue::MakeRoom() {
  if (overflowed_) return false;
  const uint32_t consumer = std::atomic_ref(header_->consumer).load(std::memory_order_acquire);
  if (producer_ - consumer < capacity_) {
    consumer_ = consumer;
    return true;
  }
  overflowed_ = true;
  std::atomic_ref(header_->overflowed).store(1, std::memory_order_relaxed);
  if (session_.SendAsyncEvent(user_handle_, kEventCqError)) {
    async_events_.store(async_events() + 1, std::memory_order_relaxed);
  }
  return false;
}

bool CompletionQueue::SwapRing(SharedMemory& ring, uint32_t capacity, uint32_t consumer) {
  const uint32_t unconsumed = producer_ - consumer;
  if (unconsumed > capacity_ || unconsumed > capacity) return false;
  const roci_abi_cqe* old_entries = entries_;
  const uint32_t old_mask = capacity_ - 1;
  const uint32_t arm = std::atomic_ref(header_->arm).load(std::memory_order_relaxed);
  std::swap(memory_, ring);
  UseRing(capacity);
  for (uint32_t i = 0; i < unconsumed; ++i) {
    entries_[i] = old_entries[(consumer + i) & old_mask];
    entries_[i].generation = GenerationOf(i, capacity_shift_);
  }
  header_->arm = arm;
  header_->producer = unconsumed;
  header_->overflowed = overflowed_;
  producer_ = unconsumed;
  consumer_ = 0;
  return true;
}

void CompletionEvents::Register() {
  ++queues_;
  touched_.reserve(queues_);
  delayed_.reserve(queues_);
}

void CompletionEvents::Unregister(CompletionQueue& cq) {
  --queues_;
  std::erase(touched_, &cq);
  std::erase(delayed_, &cq);
}

void CompletionEvents::Flush() {
  if (touched_.empty()) return;
  // The entries are visible before `arm` is read; the app stores `arm` before it looks for entries
  // a last time. One of both sees the other.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (CompletionQueue* cq : touched_) {
    cq->touched_ = false;
    std::atomic_ref(cq->header_->producer).store(cq->producer_, std::memory_order_relaxed);
    const bool solicited = std::exchange(cq->solicited_, false);
    if (cq->channel_ < 0) continue;
    const uint32_t arm = std::atomic_ref(cq->header_->arm).load(std::memory_order_relaxed);
    if (arm == ROCI_ABI_CQ_ARM_NONE || (arm == ROCI_ABI_CQ_ARM_SOLICITED && !solicited)) continue;
    std::atomic_ref(cq->header_->arm).exchange(ROCI_ABI_CQ_ARM_NONE, std::memory_order_seq_cst);
    Send(*cq);
  }
  touched_.clear();
}

// One event per disarming. Where the pipe has no room it is owed.
void CompletionEvents::Send(CompletionQueue& cq) {
  const roci_abi_comp_event event{cq.user_handle_};
  if (write(cq.channel_, &event, sizeof(event)) == sizeof(event)) {
    cq.comp_events_.store(cq.comp_events() + 1, std::memory_order_relaxed);
    sent.Add(1);
  } else if (errno == EAGAIN && !cq.delayed_) {
    cq.delayed_ = true;
    delayed_.push_back(&cq);
    delayed.Add(1);
  }
}

// A few at a time: an app that does not read its channel must not take the lcore from others.
void CompletionEvents::Retry() {
  std::array<CompletionQueue*, kRetriesPerCall> owed;
  const size_t count = std::min(delayed_.size(), owed.size());
  std::copy_n(delayed_.begin(), count, owed.begin());
  delayed_.erase(delayed_.begin(), delayed_.begin() + static_cast<ptrdiff_t>(count));
  for (size_t i = 0; i < count; ++i) {
    owed[i]->delayed_ = false;
    Send(*owed[i]);
  }
}

}  // namespace roci::dataplane
