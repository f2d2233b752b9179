// The largest queues. Control advertises no more, and checks requests and configuration against
// these limits; the dataplane asserts them.
#pragma once

#include <cstdint>

#include "verbs_provider/abi/rings.h"

namespace roci::dataplane {

// Entries of a send queue, a receive queue or a shared receive queue.
inline constexpr uint32_t kMaxQueueEntries = 16384;
inline constexpr uint32_t kMaxCompletionEntries = 1u << 20;  // of a completion queue
inline constexpr uint32_t kMaxSges = ROCI_ABI_MAX_SGE;       // of a work request
inline constexpr uint32_t kMaxInlineBytes = 1024;            // of a send request

}  // namespace roci::dataplane
