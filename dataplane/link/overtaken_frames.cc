#include "dataplane/link/overtaken_frames.h"

#include <rte_mbuf.h>

namespace roci::dataplane {

OvertakenFrames::~OvertakenFrames() {
  for (const Waiting& waiting : waiting_) rte_pktmbuf_free(waiting.frame);
}

bool OvertakenFrames::Push(rte_mbuf* frame, uint8_t to, uint32_t count, uint64_t now_ns) {
  if (waiting_.size() == kCapacity) return false;
  waiting_.push_back({.frame = frame, .due_ns = now_ns + kMostNs, .left = count, .to = to});
  return true;
}

uint64_t OvertakenFrames::next_due() const {
  uint64_t due_ns = UINT64_MAX;
  for (const Waiting& waiting : waiting_) due_ns = std::min(due_ns, waiting.due_ns);
  return due_ns;
}

}  // namespace roci::dataplane
