// The largest queues and messages.
#pragma once

#include <cstdint>

namespace roci::dataplane {

// The largest queue pair; control advertises no more.
struct QueueLimits {
  uint32_t max_wr = 32768;
  uint32_t max_sge = 32;
  uint32_t max_inline = 1024;  // bytes
};
inline constexpr QueueLimits kQueueLimits;

inline constexpr uint32_t kMaxMessageBytes = 1u << 31;

}  // namespace roci::dataplane
