// A DPDK ethdev under a device: opened by its devargs, its receive queues polled by the lcores in
// turn (the home lcore has the first), hand-off rings between the lcores for what came to the wrong
// one. What a device sends to itself turns round here, since hardly any link brings it back.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "dataplane/base/counters.h"
#include "dataplane/base/eal.h"
#include "dataplane/base/frame_pool.h"
#include "dataplane/base/prefetch.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/port/link_state.h"
#include "dataplane/port/port_offloads.h"
#include "dataplane/port/port_queues.h"
#include "dataplane/port/port_services.h"
#include "dataplane/port/port_sockets.h"
#include "roce/types.h"

struct rte_eth_dev_info;
struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

namespace roci::dataplane {

// What the NIC, or what stands in for one, has lost before or behind us.
struct PortLosses {
  uint64_t rx_missed = 0;     // it had no descriptor, or its queue was full
  uint64_t rx_errors = 0;     // damaged
  uint64_t rx_no_buffer = 0;  // the pool was empty
  uint64_t tx_errors = 0;
};

class EthdevPort {
 public:
  struct Config {
    std::string devargs;
    uint32_t mtu = 1500;  // wanted; a PMD that cannot be told keeps its own
    roce::Mac mac;        // all zero: the port's own
    uint32_t home_lcore = 0;
  };

  // Control thread. NotFound if the devargs name no Ethernet device.
  static absl::StatusOr<std::unique_ptr<EthdevPort>> Open(PortServices& services,
                                                          const Config& config);
  // Of DPDK's heap, for frames of its own, where a port may need some there.
  static uint32_t MostHeapMib();
  // No lcore may use the port any more.
  ~EthdevPort();

  // ---- Control thread
  const roce::Mac& mac() const { return mac_; }
  // As it is now; the speed only where somebody has measured it (see driver_speed_mbps).
  LinkState ReadLink() const;
  // While the link is down, once a second at most: a port that reaches its peer only when it starts
  // tries again.
  void Reconnect();
  // What the driver says of the speed: those without a link of their own make one up. 0: nothing.
  uint32_t driver_speed_mbps() const;
  // Whether frames above the MTU are lost without a word (a network device of the kernel's).
  bool loses_above_mtu() const { return network_device_ != 0; }
  PortLosses losses();  // none where nobody counts
  // Frames that came in several segments and were put together.
  uint64_t made_whole() const;
  PortQueues queues() const { return queues_; }
  // Those that it was asked for, and frames in pieces where they come unasked.
  PortOffloads offloads() const;
  uint16_t port_id() const { return port_; }
  uint32_t home_lcore() const { return home_lcore_; }
  // Whether frames to other stations' addresses come in too, where the PMD can choose.
  void SetPromiscuous(bool on);

  // ---- Lcores
  // The first `handed_off` of the frames have been at another lcore, which gave them to this one.
  struct Received {
    uint32_t count;
    uint32_t handed_off;
  };
  Received Receive(uint32_t lcore, rte_mbuf** frames, uint32_t count);
  bool Pending(uint32_t lcore) const;
  // Any lcore that receives. Hands off a received frame, unparsed, to the lcore that owns its queue
  // pair; false (the frame stays the caller's) if that lcore is behind.
  bool HandOffToLcore(rte_mbuf* frame, uint32_t to_lcore);
  // Takes over up to `count` frames, in order; returns how many. `lcores` as for Wire::Transmit.
  uint32_t Transmit(uint32_t lcore, rte_mbuf** frames, const uint8_t* lcores, uint32_t count);
  // Which checksums of a raw frame the port fills in (RTE_ETH_TX_OFFLOAD_*): none where it turns
  // round.
  uint64_t ChecksumsOf(const rte_mbuf& frame) const;
  // Once, before a frame is sent that leaves some to the port. False: the port does not take it so.
  bool Prepare(uint32_t lcore, rte_mbuf& frame) const;
  // Home lcore, once per loop: sends what others queued, where the port has too few queues.
  uint32_t ServeOthers();
  bool IsHome(uint32_t lcore) const { return lcore == home_lcore_; }

 private:
  explicit EthdevPort(PortServices& services) : services_(services) {}
  absl::Status Configure(const Config& config);
  absl::Status SetUp(const Config& config, const rte_eth_dev_info& info);
  absl::Status SetAddress(const roce::Mac& wanted);
  absl::Status SetMtu(const Config& config, const rte_eth_dev_info& info);
  int ConfigureQueues(uint32_t mtu, const rte_eth_dev_info& info);
  int ConfigureFor(uint32_t mtu, const rte_eth_dev_info& info);
  absl::Status SetUpQueues();
  int SetUpReceiving();
  int ReceiveInto(rte_mempool* pool);
  int ReceiveWith(uint32_t frames, uint16_t buffer_bytes, FrameMemory memory);
  bool Scatters() const;
  int Start();
  int TryToStart();
  void Close();
  bool RunWherePeerIsWatched(const std::function<void()>& work);
  void MakeUsual(uint32_t lcore, rte_mbuf** frames, uint32_t count);
  unsigned Socket() const;
  absl::Status OpenRings();
  enum class Way : uint8_t { kOut, kBack, kBoth };
  Way WayOf(const rte_mbuf* frame, uint8_t lcore) const;
  uint32_t SendToGroup(uint32_t lcore, rte_mbuf* frame);
  uint32_t TurnRound(uint32_t lcore, rte_mbuf** frames, uint32_t count);
  uint32_t Send(uint32_t lcore, rte_mbuf** frames, uint32_t count);
  uint32_t FirstQueueOf(uint32_t lcore) const { return (lcore + lcores_ - home_lcore_) % lcores_; }
  uint32_t ReceiveFromQueues(uint32_t lcore, rte_mbuf** frames, uint32_t count);

  static constexpr size_t kMostHeldFrames = 32;  // that the port has not taken

  PortServices& services_;
  std::string devargs_;  // as probed
  PortSockets sockets_;
  std::unique_ptr<FramePool> own_frames_;
  uint16_t port_ = 0;
  bool attached_ = false;
  PortQueues queues_;
  PortOffloads offloads_;
  uint16_t rx_descriptors_ = 0;  // of each queue
  uint32_t lcores_ = 1;
  bool queue_per_lcore_ = false;
  bool tells_pending_ = true;
  bool always_promiscuous_ = false;
  bool link_brings_back_ = false;
  bool is_hardware_ = false;
  bool connects_at_start_ = false;
  bool interrupts_watch_peer_ = false;  // and the link is read as they left it
  uint64_t reconnected_at_ns_ = 0;
  std::atomic<bool> is_started_{false};  // else no lcore may touch its queues
  uint32_t network_device_ = 0;          // its number; 0: there is none
  Fd all_groups_;                        // both where there is one
  Fd all_stations_;
  uint32_t home_lcore_ = 0;
  uint32_t mtu_ = 0;  // that the port can carry; a network device may carry less
  roce::Mac mac_;
  std::array<rte_ring*, kMaxLcores> to_lcore_{};
  // Which of its queues an lcore asks first.
  struct alignas(kCacheLineBytes) Turn {
    uint32_t number = 0;
    Counter made_whole;
  };
  std::array<Turn, kMaxLcores> turns_{};
  rte_ring* from_others_ = nullptr;
  rte_ring* from_self_ = nullptr;
  std::array<rte_mbuf*, kMostHeldFrames> held_{};
  uint32_t held_count_ = 0;
};

}  // namespace roci::dataplane
