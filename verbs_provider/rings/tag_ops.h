// The app's half of the list operations of a tag-matching shared receive queue. Sans libibverbs
// calls, as send_queue.h.
#pragma once

#include <cstdint>

#include "verbs_provider/abi/tag_matching.h"
#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/base/shared_mapping.h"
#include "verbs_provider/base/spin_lock.h"
#include "verbs_provider/rings/doorbell.h"

namespace roci::provider {

/// Slots of the tag list are chosen here, and come back through a ring that the daemon writes.
/// Everything under `lock`.
struct TagOps {
  SpinLock lock;
  roci_abi_tag_queue* shared = nullptr;  // null: no tag matching
  roci_abi_tag_op* ops = nullptr;
  const uint32_t* freed = nullptr;
  uint32_t ops_mask = 0;
  uint32_t freed_mask = 0;
  uint32_t max_ops = 0;
  uint32_t max_tags = 0;
  uint32_t head = 0;        // operations posted so far
  uint32_t freed_seen = 0;  // entries of `freed` taken so far
  uint32_t free_count = 0;
  uint16_t* free_slots = nullptr;  // malloc
  uint16_t* turns = nullptr;       // malloc; by slot
  Doorbells bells;
  uint32_t doorbell = 0;

  /// Uses memory that the daemon laid out. 0, ENOMEM or EPROTO.
  int Use(const SharedMapping& memory, const roci_abi_create_tag_srq_response& layout,
          uint32_t tags, uint32_t operations);
  void FreeMemory();
};

/// ibv_post_srq_ops: 0, ENOMEM (too many operations or tags), EINVAL. The operations before the
/// first bad one are posted, `*bad` is that one. Takes the lock.
int PostTagOps(TagOps& ops, ibv_ops_wr* list, ibv_ops_wr** bad);

}  // namespace roci::provider
