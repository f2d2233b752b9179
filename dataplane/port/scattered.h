// Linearizes frames that a port delivers in several segments. All other code expects one segment.
#pragma once

struct rte_mbuf;
struct rte_mempool;

namespace roci::dataplane {

// Replaces the frame by a copy in one buffer of `pool` and frees the old one. False, with the frame
// unchanged: no buffer is free, or the frame is longer than a buffer.
bool Linearize(rte_mbuf*& frame, rte_mempool* pool);

}  // namespace roci::dataplane
