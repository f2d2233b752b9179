#include "dataplane/qp/shared_receive_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/status/status.h"
#include "dataplane/base/async_event.h"
#include "dataplane/qp/queue_layouts.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/rings/receive_entry.h"

namespace roci::dataplane {

using roce::FetchResult;

absl::StatusOr<std::unique_ptr<SharedReceiveQueue>> SharedReceiveQueue::Create(
    VerbsContext& context, const SharedReceiveQueueConfig& config, uint32_t handle,
    uint32_t number) {
  const roci_abi_srq_layout layout = LayOutSharedReceiveQueue(config.max_wr, config.max_sge);
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::Create("roci-srq", layout.memory_size, context.retired_rings());
  if (!memory.ok()) return memory.status();
  std::unique_ptr<TagQueue> tags;
  if (config.tags.max_tags != 0) {
    absl::StatusOr<std::unique_ptr<TagQueue>> created =
        TagQueue::Create(config.tags, handle, *config.cq);
    if (!created.ok()) return created.status();
    tags = *std::move(created);
  }
  return std::unique_ptr<SharedReceiveQueue>(new SharedReceiveQueue(
      context, config, handle, number, layout, *std::move(memory), std::move(tags)));
}

SharedReceiveQueue::SharedReceiveQueue(VerbsContext& context,
                                       const SharedReceiveQueueConfig& config, uint32_t handle,
                                       uint32_t number, const roci_abi_srq_layout& layout,
                                       SharedMemory memory, std::unique_ptr<TagQueue> tags)
    : limit_(config.limit),
      max_sge_(static_cast<uint8_t>(layout.max_sge)),
      pd_(config.pd),
      handle_(handle),
      number_(number),
      context_(context),
      domain_(config.domain),
      cq_(config.cq),
      tags_(std::move(tags)),
      user_handle_(config.user_handle),
      layout_(layout),
      memory_(std::move(memory)) {
  UseMemory();
}

void SharedReceiveQueue::UseMemory() {
  header_ = reinterpret_cast<roci_abi_srq*>(memory_.data());
  ring_ = reinterpret_cast<const uint32_t*>(memory_.data() + layout_.ring_offset);
  slots_ = memory_.data() + layout_.slots_offset;
  ring_mask_ = layout_.ring_capacity - 1;
  slot_count_ = layout_.max_wr;
  stride_ = layout_.stride;
}

FetchResult SharedReceiveQueue::Fetch(const OnShard& shard, roce::RecvWqe& out,
                                      roce::CompletionStatus& bad_status) {
  uint32_t slot;
  if (!TakeSlot(shard, slot)) return FetchResult::kEmpty;
  const FetchResult result = TakeReceive(Slot(slot), max_sge_, out, bad_status);
  out.slot = slot;
  if (limit_ != 0) [[unlikely]]
    CheckLimit(shard);
  return result;
}

bool SharedReceiveQueue::TakeSlot(const OnShard& shard, uint32_t& slot) {
  if (!returned_.empty()) [[unlikely]] {
    slot = returned_.back();
    returned_.pop_back();
    return true;
  }
  if (next_ == seen_ && !Refresh(shard)) return false;
  slot = __atomic_load_n(&ring_[next_ & ring_mask_], __ATOMIC_RELAXED);
  if (slot >= slot_count_) [[unlikely]] {
    Fail(shard);
    return false;
  }
  ++next_;
  return true;
}

bool SharedReceiveQueue::Refresh(const OnShard& shard) {
  if (broken_) return false;
  const uint32_t producer = std::atomic_ref(header_->producer).load(std::memory_order_acquire);
  if (producer - next_ > slot_count_) [[unlikely]] {
    Fail(shard);
    return false;
  }
  seen_ = producer;
  std::atomic_ref(header_->consumer).store(next_, std::memory_order_relaxed);
  return seen_ != next_;
}

void SharedReceiveQueue::Fail(const OnShard& shard) {
  seen_ = next_;
  if (broken_) return;
  broken_ = true;
  RaiseEvent(shard, kEventSrqError);
}

roce::Sge SharedReceiveQueue::ReadSge(const OnShard&, const roce::RecvWqe& wqe, uint32_t i) const {
  return ReadReceiveSge(Slot(wqe.slot), i);
}

uint32_t SharedReceiveQueue::CountPosted(const OnShard& shard) {
  Refresh(shard);
  return seen_ - next_ + static_cast<uint32_t>(returned_.size());
}

// IBTA vol 1, 10.2.9.2: once, when the number of entries falls below the limit.
void SharedReceiveQueue::CheckLimit(const OnShard& shard) {
  if (seen_ - next_ + returned_.size() >= limit_ || CountPosted(shard) >= limit_) return;
  limit_ = 0;
  RaiseEvent(shard, kEventSrqLimitReached);
}

bool SharedReceiveQueue::RaiseEvent(const OnShard& shard, uint32_t type) {
  if (!context_.SendAsyncEvent(shard, user_handle_, type)) return false;
  async_events_.store(async_events() + 1, std::memory_order_relaxed);
  return true;
}

bool SharedReceiveQueue::CopySlots(SharedReceiveQueueGrowth& growth, size_t most) const {
  const size_t bytes = size_t{slot_count_} * stride_;
  const size_t part = std::min(most, bytes - growth.copied);
  std::memcpy(growth.memory.data() + growth.layout.slots_offset + growth.copied,
              slots_ + growth.copied, part);
  growth.copied += part;
  return growth.copied < bytes;
}

bool SharedReceiveQueue::Grow(const OnShard& shard, SharedReceiveQueueGrowth& growth) {
  Refresh(shard);
  if (broken_) return false;
  const uint32_t* old_ring = ring_;
  const uint32_t old_mask = ring_mask_;
  std::swap(memory_, growth.memory);
  layout_ = growth.layout;
  UseMemory();
  auto* ring = reinterpret_cast<uint32_t*>(memory_.data() + layout_.ring_offset);
  for (uint32_t i = next_; i != seen_; ++i) ring[i & ring_mask_] = old_ring[i & old_mask];
  header_->producer = seen_;
  return true;
}

}  // namespace roci::dataplane
