// The program's half of the ring of tag list operations of a shared receive queue. Calls nothing in
// libibverbs.
#pragma once

#include <cstdint>

#include "verbs_provider/abi/tag_matching.h"
#include "verbs_provider/base/provider_api.h"
#include "verbs_provider/base/shared_mapping.h"
#include "verbs_provider/base/spin_lock.h"
#include "verbs_provider/rings/doorbell.h"

namespace roci::provider {

/// The plugin chooses the slots of the tag list; the daemon returns free ones through the ring
/// `freed`. All members are under `lock`.
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
  uint32_t freed_seen = 0;  // entries of `freed` consumed so far
  uint32_t free_count = 0;
  uint16_t* free_slots = nullptr;   // malloc'ed
  uint16_t* generations = nullptr;  // malloc'ed; by slot
  Doorbells bells;
  uint32_t doorbell = 0;

  /// Uses memory that the daemon has laid out. 0, ENOMEM or EPROTO.
  int Use(const SharedMapping& memory, const roci_abi_create_tag_srq_response& layout,
          uint32_t tags, uint32_t operations);
  void FreeMemory();
};

/// ibv_post_srq_ops: 0, ENOMEM (too many operations or tags) or EINVAL. On an error `*bad` is the
/// first bad operation; the operations before it are posted. Takes the lock.
int PostTagOps(TagOps& ops, ibv_ops_wr* list, ibv_ops_wr** bad);

}  // namespace roci::provider
