// The built-in wire: a switch between the devices of one daemon. Frames are handed over as pointers
// through one ring per endpoint and lcore.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "dataplane/base/eal.h"
#include "dataplane/port/port_services.h"
#include "roce/types.h"

struct rte_mbuf;
struct rte_ring;

namespace roci::dataplane {

// Forwards by destination MAC: to that endpoint (the sender's own included), group addresses to
// all (the sender too, unless the control plane sent the frame), unknown addresses nowhere. Nothing
// is learnt; the addresses are those of the endpoints.
class Wire {
 public:
  static constexpr uint32_t kMaxEndpoints = 64;
  static constexpr uint32_t kRingEntries = 1024;
  // In place of an lcore: the frame comes from the control plane and goes to the receiver's.
  static constexpr uint8_t kFromControl = 0xFF;
  // The same, and a group frame comes to the sender as well: frames of raw packet queue pairs.
  static constexpr uint8_t kRawPacket = 0xFE;

  explicit Wire(PortServices& services);
  // All endpoints must have been removed.
  ~Wire();

  // ---- Control thread
  // None if the wire is full or rings cannot be had. Two endpoints with one address: frames go to
  // the first.
  std::optional<uint32_t> AddEndpoint(const roce::Mac& mac);
  // No lcore uses the endpoint any more when it returns; frames on their way are freed.
  void RemoveEndpoint(uint32_t endpoint);
  uint32_t endpoint_count() const { return used_; }

  // ---- Any lcore
  // Takes over up to `count` frames, in order, and returns how many: fewer when a receiver's ring
  // is full. `lcores[i]` is the lcore that frame i is for (its QPN says so); group frames go to all
  // lcores of a receiver. Frames to nobody count as taken.
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
