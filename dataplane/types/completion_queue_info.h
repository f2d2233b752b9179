// When a completion queue sends events, and its state.
#pragma once

#include <cstdint>

namespace roci::dataplane {

// When the event of an armed CQ is sent: after `count` new entries, or `period_ns` after the first
// of them. 0: no such condition; without any, the event is sent at once.
struct EventModeration {
  uint32_t count = 0;
  uint64_t period_ns = 0;
  bool none() const { return count <= 1 && period_ns == 0; }
};

struct CompletionQueueInfo {
  // Of the ring, in the memory that the program maps.
  uint32_t capacity = 0;
  uint32_t entries_offset = 0;
  uint64_t memory_size = 0;
  uint32_t ref_count = 0;     // queue pairs, for each of their queues; shared receive queues
  uint32_t comp_events = 0;   // sent
  uint32_t async_events = 0;  // sent
  bool overflowed = false;
};

}  // namespace roci::dataplane
