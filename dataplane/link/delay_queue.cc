#include "dataplane/link/delay_queue.h"

#include <rte_mbuf.h>

#include <algorithm>

namespace roci::dataplane {

DelayQueue::~DelayQueue() {
  for (const Held& held : heap_) rte_pktmbuf_free(held.frame);
}

bool DelayQueue::Push(rte_mbuf* frame, uint8_t to, uint64_t due_ns) {
  if (!HasRoom()) return false;
  heap_.push_back({due_ns, serial_++, frame, to});
  std::push_heap(heap_.begin(), heap_.end(), Later);
  return true;
}

rte_mbuf* DelayQueue::Pop(uint64_t now_ns, uint8_t* to) {
  if (heap_.empty() || heap_.front().due_ns > now_ns) return nullptr;
  std::pop_heap(heap_.begin(), heap_.end(), Later);
  const Held held = heap_.back();
  heap_.pop_back();
  *to = held.to;
  return held.frame;
}

}  // namespace roci::dataplane
