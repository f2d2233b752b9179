// Frames that a port hands over in several segments. What comes behind knows frames of one only.
#pragma once

struct rte_mbuf;
struct rte_mempool;

namespace roci::dataplane {

// A copy in one buffer of `pool` takes the place of the frame, which goes back to its own. False:
// the frame stays as it is; no buffer was free, or it is longer than one.
bool MakeWhole(rte_mbuf*& frame, rte_mempool* pool);

}  // namespace roci::dataplane
