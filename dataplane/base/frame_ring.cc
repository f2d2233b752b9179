#include "dataplane/base/frame_ring.h"

#include <rte_mbuf.h>
#include <rte_ring.h>

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"

namespace roci::dataplane {

rte_ring* MakeFrameRing(const char* kind, uint32_t entries, Producers producers) {
  static std::atomic<uint32_t> serial{0};
  const std::string name = absl::StrCat("roci_", kind, serial.fetch_add(1));
  const unsigned flags = producers == Producers::kOne ? RING_F_SP_ENQ : 0;
  return rte_ring_create(name.c_str(), entries, SOCKET_ID_ANY, flags | RING_F_SC_DEQ);
}

void FreeFrameRing(rte_ring* ring) {
  if (ring == nullptr) return;
  void* frame;
  while (rte_ring_dequeue(ring, &frame) == 0) rte_pktmbuf_free(static_cast<rte_mbuf*>(frame));
  rte_ring_free(ring);
}

}  // namespace roci::dataplane
