// Rings that pass frames from one thread or several to one other.
#pragma once

#include <cstdint>

struct rte_ring;

namespace roci::dataplane {

// How many threads put frames in.
enum class Producers : uint8_t { kOne, kSeveral };

// A ring with one consumer; `entries` is a power of two. Null where there is no memory. Any thread.
rte_ring* MakeFrameRing(const char* kind, uint32_t entries, Producers producers);

// Frees the ring with the frames in it; null is nothing.
void FreeFrameRing(rte_ring* ring);

}  // namespace roci::dataplane
