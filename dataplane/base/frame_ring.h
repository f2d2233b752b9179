// Rings that pass frames from one or several threads to one thread.
#pragma once

#include <cstdint>

struct rte_ring;

namespace roci::dataplane {

// How many threads enqueue frames.
enum class Producers : uint8_t { kOne, kSeveral };

// A ring with one consumer; `entries` is a power of two. Null if memory is short. Any thread.
rte_ring* MakeFrameRing(const char* kind, uint32_t entries, Producers producers);

// Frees the ring and the frames in it. `ring` may be null.
void FreeFrameRing(rte_ring* ring);

}  // namespace roci::dataplane
