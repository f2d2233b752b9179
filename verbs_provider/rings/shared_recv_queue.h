// The program's half of a shared receive queue. Calls nothing in libibverbs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "verbs_provider/abi/session.h"
#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/base/shared_mapping.h"
#include "verbs_provider/base/spin_lock.h"

namespace roci::provider {

/// Slots complete in any order, so the free ones are on a stack. All members are under `lock`. Lock
/// order: a CQ's lock before `lock`.
struct SharedRecvQueue {
  SpinLock lock;
  roci_abi_srq* shared = nullptr;
  uint32_t* ring = nullptr;  // slot numbers in the order of posting
  std::byte* slots = nullptr;
  uint32_t ring_mask = 0;
  uint32_t stride = 0;   // bytes
  uint32_t max_sge = 0;  // fit in a slot
  uint32_t head = 0;     // entries posted so far
  uint32_t limit = 0;    // most outstanding entries, <= slot_count
  uint32_t slot_count = 0;
  uint32_t free_count = 0;
  uint32_t* free_slots = nullptr;  // malloc'ed

  uint32_t outstanding() const { return slot_count - free_count; }

  /// Uses memory that the daemon has laid out: empty at creation, or a copy of the old memory after
  /// growth. 0, or ENOMEM or EPROTO with nothing changed.
  int Use(const SharedMapping& memory, const roci_abi_srq_layout& layout);
  /// Makes room for `count` free slots, or as many as there are now if that is more. Afterwards
  /// Use() of as many allocates nothing. 0 or ENOMEM.
  int Reserve(uint32_t count);
  /// Bytes of memory that a queue with `count` slots of this size takes, at most.
  uint64_t BytesFor(uint32_t count) const;
  /// Frees the slot of a completed entry. Takes the lock.
  void Release(uint32_t slot);
  void FreeMemory();
};

/// ibv_post_srq_recv: 0, ENOMEM (queue full) or EINVAL. On an error `*bad` is the first bad
/// request; the requests before it are posted. Takes the lock.
int PostSharedRecvList(SharedRecvQueue& queue, ibv_recv_wr* list, ibv_recv_wr** bad);

}  // namespace roci::provider
