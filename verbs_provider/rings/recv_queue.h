// The program's half of a receive queue ring. Calls nothing in libibverbs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "verbs_provider/abi/rings.h"
#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/base/spin_lock.h"
#include "verbs_provider/rings/doorbell.h"

namespace roci::provider {

struct RecvQueue {
  // Fixed at creation.
  roci_abi_queue* shared = nullptr;
  std::byte* slots = nullptr;
  Doorbells bells;
  uint32_t handle = 0;   // of the QP
  uint32_t mask = 0;     // slots - 1
  uint32_t stride = 0;   // bytes
  uint32_t limit = 0;    // most outstanding entries, <= slots; 0: the QP has no receive queue
  uint32_t max_sge = 0;  // fit in a slot

  alignas(ROCI_ABI_CACHE_LINE) SpinLock lock;
  uint32_t head = 0;  // entries written so far; under the lock

  /// Entries before this index may be overwritten. Stored by poll, under the CQ's lock.
  alignas(ROCI_ABI_CACHE_LINE) std::atomic<uint32_t> tail{0};

  std::byte* Slot(uint32_t index) const {
    return slots + static_cast<size_t>(index & mask) * stride;
  }
  bool IsFull(uint32_t index) const {
    return index - tail.load(std::memory_order_acquire) >= limit;
  }
};

/// ibv_post_recv: 0, ENOMEM (queue full) or EINVAL. On an error `*bad` is the first bad request;
/// the requests before it are posted.
int PostRecvList(RecvQueue& queue, ibv_recv_wr* list, ibv_recv_wr** bad);

}  // namespace roci::provider
