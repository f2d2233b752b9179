// A DPDK ethdev under a device: opened by its devargs, one receive queue polled by the device's
// home lcore, hand-off rings to and from the other lcores. What a device sends to itself turns
// round here, since hardly any link brings it back.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "dataplane/eal.h"
#include "dataplane/frame_pool.h"
#include "roce/types.h"

struct rte_eth_dev_info;
struct rte_mbuf;
struct rte_ring;

namespace roci::dataplane {

class Dataplane;

class EthdevPort {
 public:
  struct Config {
    std::string devargs;
    uint32_t mtu = 1500;  // wanted; a PMD that cannot be told keeps its own
    roce::Mac mac;        // all zero: the port's own
    uint32_t home_lcore = 0;
  };

  // Control thread. NotFound if the devargs name no Ethernet device.
  static absl::StatusOr<std::unique_ptr<EthdevPort>> Open(Dataplane& dataplane,
                                                          const Config& config);
  // Of DPDK's heap, for frames of its own, where a port may need some there.
  static uint32_t MostHeapMib();
  // No lcore may use the port any more.
  ~EthdevPort();

  // ---- Control thread
  const roce::Mac& mac() const { return mac_; }
  uint32_t mtu() const { return mtu_; }
  bool link_up() const;
  uint32_t link_speed_mbps() const;
  uint16_t port_id() const { return port_; }
  uint32_t home_lcore() const { return home_lcore_; }
  // Whether frames to other stations' addresses come in too, where the PMD can choose.
  void SetPromiscuous(bool on);

  // ---- Lcores
  // The home lcore takes from the port, others what the home lcore handed off.
  uint32_t Receive(uint32_t lcore, rte_mbuf** frames, uint32_t count);
  bool Pending(uint32_t lcore) const;
  // Gives a received frame to another lcore; false (the frame stays the caller's) if it is behind.
  bool HandOff(rte_mbuf* frame, uint32_t to_lcore);
  // Takes over up to `count` frames, in order; returns how many. `lcores` as for Wire::Transmit.
  uint32_t Transmit(uint32_t lcore, rte_mbuf** frames, const uint8_t* lcores, uint32_t count);
  // Home lcore, once per loop: sends what others queued, where the port has too few queues.
  uint32_t ServeOthers();
  bool IsHome(uint32_t lcore) const { return lcore == home_lcore_; }

 private:
  explicit EthdevPort(Dataplane& dataplane) : dataplane_(dataplane) {}
  absl::Status Configure(const Config& config);
  absl::Status SetAddress(const roce::Mac& wanted);
  absl::Status SetMtu(const Config& config, const rte_eth_dev_info& info, uint16_t tx_queues);
  int SetUpReceiving(uint16_t descriptors);
  int ReceiveWith(uint32_t frames, uint16_t buffer_bytes, FrameMemory memory, uint16_t descriptors);
  bool Scatters() const;
  int Start(uint16_t descriptors);
  unsigned Socket() const;
  absl::Status OpenRings();
  enum class Way : uint8_t { kOut, kBack, kBoth };
  Way WayOf(const rte_mbuf* frame, uint8_t lcore) const;
  uint32_t SendToGroup(uint32_t lcore, rte_mbuf* frame);
  uint32_t TurnRound(uint32_t lcore, rte_mbuf** frames, uint32_t count);
  uint32_t Send(uint32_t lcore, rte_mbuf** frames, uint32_t count);

  Dataplane& dataplane_;
  std::string devargs_;  // as probed
  std::unique_ptr<FramePool> own_frames_;
  uint16_t port_ = 0;
  bool attached_ = false;
  bool queue_per_lcore_ = false;
  bool tells_pending_ = true;
  bool always_promiscuous_ = false;
  bool link_brings_back_ = false;
  uint32_t home_lcore_ = 0;
  uint32_t mtu_ = 0;
  roce::Mac mac_;
  std::array<rte_ring*, kMaxLcores> to_lcore_{};
  rte_ring* from_others_ = nullptr;
  rte_ring* from_self_ = nullptr;
  std::array<rte_mbuf*, 32> held_{};
  uint32_t held_count_ = 0;
};

}  // namespace roci::dataplane
