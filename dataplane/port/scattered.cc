#include "dataplane/port/scattered.h"

#include <rte_mbuf.h>

namespace roci::dataplane {

bool Linearize(rte_mbuf*& frame, rte_mempool* pool) {
  const uint32_t room = rte_pktmbuf_data_room_size(pool) - RTE_PKTMBUF_HEADROOM;
  if (frame->pkt_len > room) return false;
  rte_mbuf* whole = rte_pktmbuf_copy(frame, pool, 0, UINT32_MAX);
  if (whole == nullptr) return false;
  rte_pktmbuf_free(frame);
  frame = whole;
  return true;
}

}  // namespace roci::dataplane
