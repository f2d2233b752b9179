// Parameters of a new shared receive queue and of its tag matching.
#pragma once

#include <cstdint>

namespace roci::dataplane {

class CompletionQueue;
class XrcTargets;

struct TagQueueConfig {
  uint32_t max_tags = 0;  // at most ROCI_ABI_MAX_TAGS; 0: no tag matching
  uint32_t max_ops = 0;   // 1 to ROCI_ABI_MAX_TAG_OPS
};

// Offsets in the memfd, named as in roci_abi_create_tag_srq_response.
struct TagQueueLayout {
  uint32_t ops_capacity, ops_offset, freed_capacity, freed_offset;
  uint64_t memory_size;
};

struct SharedReceiveQueueConfig {
  uint32_t pd = 0;
  uint32_t max_wr = 1;
  uint32_t max_sge = 1;
  uint32_t limit = 0;        // as SetLimit
  uint64_t user_handle = 0;  // what events carry
  // XRC only: the domain whose requests may name it, and where its receives complete. Both outlive
  // it.
  XrcTargets* domain = nullptr;
  CompletionQueue* cq = nullptr;  // with tag matching too
  TagQueueConfig tags;
};

}  // namespace roci::dataplane
