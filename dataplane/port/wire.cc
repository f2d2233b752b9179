#include "dataplane/port/wire.h"

#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <cstring>

#include "dataplane/base/frame_pool.h"
#include "dataplane/base/frame_ring.h"

namespace roci::dataplane {
namespace {

constexpr uint64_t kMacMask = (uint64_t{1} << 48) - 1;  // a MAC as the low 48 bits

uint64_t MacNumber(const roce::Mac& mac) {
  uint64_t number = 0;
  std::memcpy(&number, mac.bytes.data(), mac.bytes.size());
  return number;
}

uint64_t DestinationOf(const rte_mbuf* frame) {
  uint64_t number;
  std::memcpy(&number, rte_pktmbuf_mtod(frame, const char*), sizeof(number));
  return number & kMacMask;
}

// The group bit is the lowest bit of the first byte.
bool IsGroup(uint64_t mac) { return (mac & 1) != 0; }

}  // namespace

Wire::Endpoint::~Endpoint() {
  for (rte_ring* ring : rings) FreeFrameRing(ring);
}

Wire::Wire(PortServices& services) : services_(services) {}

Wire::~Wire() {
  for (auto& endpoint : endpoints_) delete endpoint.load(std::memory_order_relaxed);
}

std::optional<uint32_t> Wire::AddEndpoint(const roce::Mac& mac) {
  const uint32_t lcores = services_.lcore_count();
  for (uint32_t i = 0; i < kMaxEndpoints; ++i) {
    if (endpoints_[i].load(std::memory_order_relaxed) != nullptr) continue;
    auto endpoint = std::make_unique<Endpoint>();
    endpoint->mac = MacNumber(mac);
    for (uint32_t lcore = 0; lcore < lcores; ++lcore) {
      endpoint->rings[lcore] =
          MakeFrameRing("w", kRingEntries, lcores == 1 ? Producers::kOne : Producers::kSeveral);
      if (endpoint->rings[lcore] == nullptr) return std::nullopt;
    }
    endpoints_[i].store(endpoint.release(), std::memory_order_release);
    ++used_;
    return i;
  }
  return std::nullopt;
}

void Wire::RemoveEndpoint(uint32_t endpoint) {
  Endpoint* removed = endpoints_[endpoint].exchange(nullptr);
  if (removed == nullptr) return;
  --used_;
  services_.Quiesce();
  delete removed;
}

Wire::Endpoint* Wire::Find(uint64_t mac) const {
  for (const auto& slot : endpoints_) {
    Endpoint* endpoint = slot.load(std::memory_order_acquire);
    if (endpoint != nullptr && endpoint->mac == mac) return endpoint;
  }
  return nullptr;
}

uint32_t Wire::Deliver(Endpoint& to, uint32_t lcore, rte_mbuf** frames, uint32_t count) {
  const uint32_t taken =
      rte_ring_enqueue_burst(to.rings[lcore], reinterpret_cast<void**>(frames), count, nullptr);
  if (services_.lcore_count() > 1) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    services_.WakeIfSleeping(lcore);
  }
  return taken;
}

// Every lcore of every receiver gets a copy, as each lcore has its own groups. Frames from a
// control thread are for control threads, and raw frames for flow rules, which all lcores know, so
// one lcore is enough for these.
void Wire::Flood(uint32_t from, const rte_mbuf* frame, uint8_t lcore_of) {
  const bool from_control = lcore_of == kFromControl;
  const uint32_t lcores = from_control || lcore_of == kRawPacket ? 1 : services_.lcore_count();
  for (uint32_t i = 0; i < kMaxEndpoints; ++i) {
    Endpoint* to = endpoints_[i].load(std::memory_order_acquire);
    if (to == nullptr || (i == from && from_control)) continue;
    for (uint32_t lcore = 0; lcore < lcores; ++lcore) {
      rte_mbuf* copy = rte_pktmbuf_copy(frame, services_.frames().mempool(), 0, UINT32_MAX);
      if (copy != nullptr && Deliver(*to, lcore, &copy, 1) == 0) rte_pktmbuf_free(copy);
    }
  }
}

uint32_t Wire::Transmit(uint32_t endpoint, rte_mbuf** frames, const uint8_t* lcores,
                        uint32_t count) {
  uint32_t i = 0;
  while (i < count) {
    const uint64_t mac = DestinationOf(frames[i]);
    if (IsGroup(mac)) [[unlikely]] {
      Flood(endpoint, frames[i], lcores[i]);
      rte_pktmbuf_free(frames[i++]);
      continue;
    }
    Endpoint* to = Find(mac);
    if (to == nullptr) [[unlikely]] {
      rte_pktmbuf_free(frames[i++]);
      continue;
    }
    uint32_t run = 1;
    while (i + run < count && lcores[i + run] == lcores[i] &&
           DestinationOf(frames[i + run]) == mac) {
      ++run;
    }
    // A made-up QPN may name an lcore that does not exist. Any lcore counts it as unknown.
    const uint32_t lcore = lcores[i] < services_.lcore_count() ? lcores[i] : 0;
    const uint32_t taken = Deliver(*to, lcore, frames + i, run);
    i += taken;
    if (taken < run) return i;
  }
  return count;
}

uint32_t Wire::Receive(uint32_t endpoint, uint32_t lcore, rte_mbuf** frames, uint32_t count) {
  Endpoint* from = endpoints_[endpoint].load(std::memory_order_relaxed);
  return rte_ring_sc_dequeue_burst(from->rings[lcore], reinterpret_cast<void**>(frames), count,
                                   nullptr);
}

bool Wire::Pending(uint32_t endpoint, uint32_t lcore) const {
  return rte_ring_empty(endpoints_[endpoint].load(std::memory_order_relaxed)->rings[lcore]) == 0;
}

}  // namespace roci::dataplane
