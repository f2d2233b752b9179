#include "dataplane/qp/tag_queue.h"

#include <algorithm>
#include <atomic>
#include <bit>

#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/queue_layouts.h"
#include "dataplane/rings/receive_entry.h"

namespace roci::dataplane {
namespace {

using roce::CompletionOpcode;
using roce::CompletionStatus;

constexpr CompletionOpcode OpcodeOf(uint8_t opcode) {
  switch (opcode) {
    case ROCI_ABI_TAG_ADD:
      return CompletionOpcode::kTagAdd;
    case ROCI_ABI_TAG_DEL:
      return CompletionOpcode::kTagDelete;
    default:
      return CompletionOpcode::kTagSync;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TagQueue>> TagQueue::Create(const TagQueueConfig& config,
                                                           uint32_t handle, CompletionQueue& cq) {
  const TagQueueLayout layout = LayOutTagQueue(config);
  absl::StatusOr<SharedMemory> memory = SharedMemory::Create("roci-tags", layout.memory_size);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<TagQueue>(new TagQueue(config, layout, handle, cq, *std::move(memory)));
}

TagQueue::TagQueue(const TagQueueConfig& config, const TagQueueLayout& layout, uint32_t handle,
                   CompletionQueue& cq, SharedMemory memory)
    : header_(reinterpret_cast<roci_abi_tag_queue*>(memory.data())),
      ops_(memory.data() + layout.ops_offset),
      freed_(reinterpret_cast<uint32_t*>(memory.data() + layout.freed_offset)),
      max_ops_(config.max_ops),
      handle_(handle),
      cq_(cq),
      list_(config.max_tags),
      layout_(layout),
      memory_(std::move(memory)) {}

// Bounded: operations that the program posts meanwhile wait for the next call.
bool TagQueue::Serve(const OnShard& shard, uint64_t now_ns) {
  has_more_ = false;
  if (broken_) return false;
  const uint32_t producer = std::atomic_ref(header_->producer).load(std::memory_order_acquire);
  if (producer == next_) [[likely]]
    return true;
  if (producer - next_ > max_ops_) {
    broken_ = true;
    return false;
  }
  const uint32_t end = next_ + std::min(producer - next_, kOpsPerCall);
  has_more_ = end != producer;
  for (; next_ != end; ++next_) {
    roci_abi_tag_op op;
    CopyOnce(op, ops_ + size_t{next_ & (layout_.ops_capacity - 1)} * sizeof(op));
    Execute(shard, op, now_ns);
  }
  std::atomic_ref(header_->consumer).store(next_, std::memory_order_release);
  return true;
}

// An operation without effect fails, and is reported even if it is not signaled.
void TagQueue::Execute(const OnShard& shard, const roci_abi_tag_op& op, uint64_t now_ns) {
  if (op.opcode == ROCI_ABI_TAG_SYNC || (op.flags & ROCI_ABI_TAG_WITH_COUNT) != 0) {
    list_.Sync(op.unexpected_count);
  }
  bool done = false;
  switch (op.opcode) {
    case ROCI_ABI_TAG_ADD:
      done = Add(op);
      break;
    case ROCI_ABI_TAG_DEL:
      done = Delete(op);
      break;
    case ROCI_ABI_TAG_SYNC:
      done = true;
      break;
    default:
      break;
  }
  if (done && (op.flags & ROCI_ABI_TAG_SIGNALED) == 0) return;
  roci_abi_cqe entry{};
  entry.wr_id = op.wr_id;
  entry.status =
      static_cast<uint8_t>(done ? CompletionStatus::kSuccess : CompletionStatus::kTagError);
  entry.opcode = static_cast<uint8_t>(OpcodeOf(op.opcode));
  entry.flags = static_cast<uint16_t>(ROCI_ABI_CQE_TAG |
                                      (list_.in_sync() ? 0 : ROCI_ABI_CQE_TAG_SYNC_REQUEST));
  entry.qp_handle = handle_;
  cq_.WriteEntry(shard, entry, /*solicited=*/!done, now_ns);
}

bool TagQueue::Add(const roci_abi_tag_op& op) {
  if (op.num_sge > ROCI_ABI_MAX_TAG_SGE) return false;
  TaggedBuffer buffer;
  buffer.wr_id = op.recv_wr_id;
  buffer.tag = op.tag;
  buffer.mask = op.mask;
  buffer.handle = op.handle;
  buffer.num_sge = op.num_sge;
  for (uint32_t i = 0; i < op.num_sge; ++i) {
    buffer.sges[i] = ToSge(op.sges[i]);
    buffer.capacity += op.sges[i].length;
  }
  return list_.Add(buffer);
}

bool TagQueue::Delete(const roci_abi_tag_op& op) {
  if (!list_.Remove(op.handle)) return false;
  PutFreed(TaggedBuffer::SlotOf(op.handle));
  return true;
}

void TagQueue::Release(const OnShard&, uint32_t slot) {
  list_.Release(slot);
  PutFreed(slot);
}

// There is room: a slot is in the list of free slots once at most. (A program that ignores the list
// harms itself.)
void TagQueue::PutFreed(uint32_t slot) {
  std::atomic_ref(freed_[freed_count_ & (layout_.freed_capacity - 1)])
      .store(slot, std::memory_order_relaxed);
  std::atomic_ref(header_->freed).store(++freed_count_, std::memory_order_release);
}

}  // namespace roci::dataplane
