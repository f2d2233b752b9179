#include "dataplane/qp/completion_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "dataplane/base/async_event.h"
#include "dataplane/qp/queue_layouts.h"
#include "dataplane/qp/verbs_context.h"

namespace roci::dataplane {
namespace {

uint32_t GenerationOf(uint32_t index, uint32_t capacity_shift) {
  return (index >> capacity_shift) + 1;
}

}  // namespace

static_assert(CompletionQueue::kEntriesOffset == sizeof(roci_abi_cq));

absl::StatusOr<std::unique_ptr<CompletionQueue>> CompletionQueue::Create(
    VerbsContext& context, CompletionEvents& events, uint32_t entries, uint64_t user_handle,
    std::shared_ptr<EventSocket> channel) {
  absl::StatusOr<SharedMemory> memory = CreateRing(entries, context.retired_rings());
  if (!memory.ok()) return memory.status();
  std::unique_ptr<CompletionQueue> cq(
      new CompletionQueue(context, events, user_handle, std::move(channel)));
  cq->memory_ = *std::move(memory);
  cq->UseRing(CompletionCapacity(entries));
  return cq;
}

absl::StatusOr<SharedMemory> CompletionQueue::CreateRing(uint32_t entries,
                                                         std::shared_ptr<memory::RetiredUse> use) {
  return SharedMemory::Create("roci-cq", CompletionRingBytes(entries), std::move(use));
}

void CompletionQueue::UseRing(uint32_t capacity) {
  header_ = reinterpret_cast<roci_abi_cq*>(memory_.data());
  entries_ = reinterpret_cast<roci_abi_cqe*>(memory_.data() + kEntriesOffset);
  capacity_ = capacity;
  capacity_shift_ = static_cast<uint32_t>(std::countr_zero(capacity));
}

// The ring looks full: reads the program's index and takes it if it is possible.
bool CompletionQueue::MakeRoom(const OnShard& shard) {
  if (overflowed()) return false;
  const uint32_t consumer = std::atomic_ref(header_->consumer).load(std::memory_order_acquire);
  if (producer_ - consumer < capacity_) {
    consumer_ = consumer;
    return true;
  }
  LoseEntry(shard);
  return false;
}

void CompletionQueue::LoseEntry(const OnShard& shard) {
  if (!ignore_overrun_) Overflow(shard);
}

void CompletionQueue::Overflow(const OnShard& shard) {
  if (overflowed()) return;
  overflowed_.store(true, std::memory_order_relaxed);
  consumer_ = producer_ - capacity_;  // it looks full, so that Write asks MakeRoom
  events_->NoteOverflow(shard, *this);
  std::atomic_ref(header_->overflowed).store(1, std::memory_order_relaxed);
  if (context_.SendAsyncEvent(shard, user_handle(), kEventCqError)) {
    async_events_.store(async_events() + 1, std::memory_order_relaxed);
  }
}

void CompletionQueue::PublishWithheld() {
  if (!has_withheld_) return;
  has_withheld_ = false;
  roci_abi_cqe& entry = entries_[withheld_index_ & (capacity_ - 1)];
  std::memcpy(static_cast<void*>(&entry), &withheld_, offsetof(roci_abi_cqe, generation));
  entry.tag_context = withheld_.tag_context;
  std::atomic_ref(entry.generation).store(withheld_.generation, std::memory_order_release);
}

void CompletionQueue::WriteEntry(const OnShard& shard, roci_abi_cqe filled, bool solicited,
                                 uint64_t now_ns) {
  if (producer_ - consumer_ >= capacity_ && !MakeRoom(shard)) return;
  filled.timestamp_ns = now_ns;
  filled.generation = 0;
  roci_abi_cqe& entry = has_withheld_ ? entries_[producer_ & (capacity_ - 1)] : withheld_;
  entry = filled;
  std::atomic_ref(entry.generation)
      .store(GenerationOf(producer_, capacity_shift_), std::memory_order_release);
  if (!has_withheld_) {
    has_withheld_ = true;
    withheld_index_ = producer_;
    events_->Withhold(shard, *this);
  }
  ++producer_;
  events_->NoteEntry(shard, *this, event_state_, solicited);
}

void CompletionQueue::WriteChanged(const OnShard& shard, const roce::Completion& completion,
                                   const CompletionOwner& owner, bool is_send, uint64_t now_ns,
                                   const Change& change) {
  if (change.loses_event) Disarm();
  // Earlier entries of the burst are not delayed, nor are their events.
  if (change.delay_ns != 0) events_->Flush(shard, now_ns);
  const uint32_t index = producer_;
  Write(shard, completion, owner, is_send, now_ns);
  if (producer_ == index) return;  // no room
  if (change.vendor_error.has_value()) {
    const bool is_withheld = has_withheld_ && withheld_index_ == index;
    roci_abi_cqe& entry = is_withheld ? withheld_ : entries_[index & (capacity_ - 1)];
    entry.vendor_error = *change.vendor_error;
  }
  if (change.delay_ns != 0) events_->Stall(shard, *this, now_ns + change.delay_ns);
}

void CompletionQueue::CopyEntries(CompletionQueueMove& move, uint32_t most) const {
  auto* const to = reinterpret_cast<roci_abi_cqe*>(move.ring.data() + kEntriesOffset);
  const auto shift = static_cast<uint32_t>(std::countr_zero(move.capacity));
  const uint32_t end = move.copied + std::min(most, move.visible - move.copied);
  for (uint32_t& i = move.copied; i < end; ++i) {
    to[i] = entries_[(move.consumer + i) & (capacity_ - 1)];
    to[i].generation = GenerationOf(i, shift);
  }
}

CompletionQueue::MoveResult CompletionQueue::SwapRing(const OnShard& shard,
                                                      CompletionQueueMove& move) {
  events_->EndStall(shard, *this);
  PublishWithheld();
  const uint32_t unconsumed = producer_ - move.consumer;
  if (unconsumed > capacity_ || unconsumed > move.capacity) return MoveResult::kDoesNotFit;
  move.visible = unconsumed;
  if (unconsumed - move.copied > kMostCopied) return MoveResult::kCopyFirst;
  CopyEntries(move, kMostCopied);
  const uint32_t arm = std::atomic_ref(header_->arm).load(std::memory_order_relaxed);
  std::swap(memory_, move.ring);
  UseRing(move.capacity);
  header_->arm = arm;
  header_->producer = unconsumed;
  header_->overflowed = overflowed();
  producer_ = unconsumed;
  event_state_.MoveDown(move.consumer);
  // A dead queue stays full forever.
  consumer_ = overflowed() ? producer_ - capacity_ : 0;
  return MoveResult::kMoved;
}

}  // namespace roci::dataplane
