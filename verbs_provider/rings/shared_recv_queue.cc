// Writes work requests into free slots of a shared receive queue.
#include "verbs_provider/rings/shared_recv_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>

#include "verbs_provider/rings/post_list.h"
#include "verbs_provider/rings/recv_entry.h"

namespace roci::provider {

int SharedRecvQueue::Use(const SharedMapping& memory, const roci_abi_srq_layout& layout) {
  const uint32_t capacity = layout.ring_capacity;
  auto* new_shared = memory.At<roci_abi_srq>(0);
  auto* new_ring = memory.At<uint32_t>(layout.ring_offset, capacity);
  auto* new_slots =
      memory.At<std::byte>(layout.slots_offset, uint64_t{layout.max_wr} * layout.stride);
  if (new_shared == nullptr || new_ring == nullptr || new_slots == nullptr || capacity == 0 ||
      (capacity & (capacity - 1)) != 0 || layout.max_wr > capacity || layout.max_wr < slot_count ||
      layout.stride % 16 != 0 || layout.slots_offset % 16 != 0 ||
      layout.stride < sizeof(roci_abi_recv_wqe) + uint64_t{layout.max_sge} * sizeof(roci_abi_sge)) {
    return EPROTO;
  }
  if (Reserve(layout.max_wr) != 0) return ENOMEM;
  for (uint32_t slot = layout.max_wr; slot != slot_count; --slot) {
    free_slots[free_count++] = slot - 1;
  }
  shared = new_shared;
  ring = new_ring;
  slots = new_slots;
  ring_mask = capacity - 1;
  stride = layout.stride;
  max_sge = layout.max_sge;
  slot_count = layout.max_wr;
  return 0;
}

int SharedRecvQueue::Reserve(uint32_t count) {
  const size_t bytes = size_t{std::max(count, slot_count)} * sizeof(*free_slots);
  auto* resized = static_cast<uint32_t*>(realloc(free_slots, bytes));
  if (resized == nullptr) return ENOMEM;
  free_slots = resized;
  return 0;
}

uint64_t SharedRecvQueue::BytesFor(uint32_t count) const {
  const uint64_t ring_bytes = std::bit_ceil(uint64_t{count}) * sizeof(uint32_t);
  return sizeof(roci_abi_srq) + ring_bytes + ROCI_ABI_CACHE_LINE + uint64_t{count} * stride;
}

void SharedRecvQueue::Release(uint32_t slot) {
  const SpinGuard guard(lock);
  if (slot < slot_count && free_count < slot_count) free_slots[free_count++] = slot;
}

void SharedRecvQueue::FreeMemory() {
  free(free_slots);
  free_slots = nullptr;
}

namespace {

// Writes `wr` as the next entry, which is not published yet.
int Write(SharedRecvQueue& queue, const ibv_recv_wr& wr) {
  if (queue.outstanding() >= queue.limit) [[unlikely]] {
    return ENOMEM;
  }
  const uint32_t slot = queue.free_slots[queue.free_count - 1];
  const int error = WriteReceive(queue.slots + size_t{slot} * queue.stride, queue.max_sge, wr);
  if (error != 0) [[unlikely]] {
    return error;
  }
  --queue.free_count;
  queue.ring[queue.head & queue.ring_mask] = slot;
  ++queue.head;
  return 0;
}

}  // namespace

int PostSharedRecvList(SharedRecvQueue& queue, ibv_recv_wr* list, ibv_recv_wr** bad) {
  const SpinGuard guard(queue.lock);
  const int error =
      WriteList(list, bad, [&queue](const ibv_recv_wr& wr) { return Write(queue, wr); });
  // No doorbell: the daemon reads the producer index when a message needs a receive.
  std::atomic_ref<uint32_t>(queue.shared->producer).store(queue.head, std::memory_order_release);
  return error;
}

}  // namespace roci::provider
