// The built-in wire: a switch between the devices of one daemon. It passes pointers to frames
// through one ring per endpoint and lcore.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "dataplane/base/limits.h"
#include "dataplane/port/port_services.h"
#include "roce/types.h"

struct rte_mbuf;
struct rte_ring;

namespace roci::dataplane {

// Forwards by destination MAC: unicast to the endpoint with that address (the sender included),
// groups to all endpoints (the sender too, unless the control thread sent the frame), unknown
// addresses nowhere. Addresses are not learnt; endpoints are added with theirs.
class Wire {
 public:
  static constexpr uint32_t kMaxEndpoints = 64;
  static constexpr uint32_t kRingEntries = 1024;
  // Instead of an lcore: the frame is from the control thread, for the receiver's control thread.
  static constexpr uint8_t kFromControl = 0xFF;
  // Instead of an lcore: the frame is from a raw packet queue pair. As above, but the sender gets
  // its group frames too.
  static constexpr uint8_t kRawPacket = 0xFE;

  explicit Wire(PortServices& services);
  // All endpoints must have been removed.
  ~Wire();

  // ---- Control thread
  // std::nullopt: the wire is full, or no ring can be allocated. If two endpoints have the same
  // MAC, the first receives the frames.
  std::optional<uint32_t> AddEndpoint(const roce::Mac& mac);
  // When it returns, no lcore uses the endpoint any more. Frames in its rings are freed.
  void RemoveEndpoint(uint32_t endpoint);
  uint32_t endpoint_count() const { return used_; }

  // ---- Any lcore
  // Takes ownership of up to `count` frames, in order, and returns how many: fewer when a
  // receiver's ring is full. `lcores[i]` is the lcore of frame i, by its QPN; group frames go to
  // all lcores of a receiver. Frames to unknown addresses are freed and count as taken.
  uint32_t Transmit(uint32_t endpoint, rte_mbuf** frames, const uint8_t* lcores, uint32_t count);
  // Frames for this endpoint and lcore; up to `count`.
  uint32_t Receive(uint32_t endpoint, uint32_t lcore, rte_mbuf** frames, uint32_t count);
  bool Pending(uint32_t endpoint, uint32_t lcore) const;

 private:
  struct Endpoint {
    uint64_t mac = 0;  // the 6 bytes as the low bytes of a number
    std::array<rte_ring*, kMaxLcores> rings{};
    ~Endpoint();
  };

  uint32_t Deliver(Endpoint& to, uint32_t lcore, rte_mbuf** frames, uint32_t count);
  void Flood(uint32_t from, const rte_mbuf* frame, uint8_t lcore_of);
  Endpoint* Find(uint64_t mac) const;

  PortServices& services_;
  uint32_t used_ = 0;
  std::array<std::atomic<Endpoint*>, kMaxEndpoints> endpoints_{};
};

}  // namespace roci::dataplane
