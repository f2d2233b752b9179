// A DPDK ethdev under a device, opened by its devargs, or packet sockets of our own in its place
// (packet_sockets.h). Its receive queues are distributed over the lcores; the home lcore has the
// first. Rings hand frames off to the lcore that owns their queue pair. Frames of a device to
// itself are looped back here, as hardly any link returns them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/base/counters.h"
#include "dataplane/base/frame_pool.h"
#include "dataplane/base/limits.h"
#include "dataplane/base/prefetch.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/port/driver_descriptors.h"
#include "dataplane/port/port_services.h"
#include "dataplane/port/port_sockets.h"
#include "dataplane/port/rx_wait.h"
#include "dataplane/types/port_state.h"
#include "roce/types.h"

struct rte_eth_dev_info;
struct rte_mbuf;
struct rte_mempool;
struct rte_ring;

namespace roci::dataplane {

class PacketSockets;

class EthdevPort {
 public:
  struct Config {
    std::string devargs;
    uint32_t mtu = kStandardMtuBytes;  // wanted; some PMDs keep their own
    roce::Mac mac;                     // all zero: that of the port
    uint32_t home_lcore = 0;
    PortSettings settings;
  };

  // Control thread. NotFound if the devargs name no Ethernet device.
  static absl::StatusOr<std::unique_ptr<EthdevPort>> Open(PortServices& services,
                                                          const Config& config);
  // The largest use of DPDK's heap by a port that needs frame buffers of its own.
  static uint32_t MostHeapMib(const PortSettings& settings, uint32_t lcores);
  // No lcore may use the port when it is destroyed.
  ~EthdevPort();

  // ---- Control thread
  const roce::Mac& mac() const { return mac_; }
  // The present state; the speed only if it is a measured one (see driver_speed_mbps).
  LinkState ReadLink() const;
  // Restarts a port that connects to its peer only at start, once a second at most, while its link
  // is down.
  void Reconnect();
  // The speed by the driver; drivers without a link make one up. 0: unknown.
  uint32_t driver_speed_mbps() const;
  // Whether frames above the MTU are lost silently (on a network device of the kernel).
  bool loses_above_mtu() const { return network_device_ != 0; }
  PortLosses losses();  // 0 where the driver does not count
  // Number of frames that were linearized.
  uint64_t linearized() const;
  PortQueues queues() const { return queues_; }
  // The offloads in use, and RX_SCATTER where frames come in several segments without it.
  PortOffloads offloads() const;
  // Frames that fit in each receive ring; 0: unknown.
  uint32_t rx_ring() const { return rx_ring_; }
  PortFlowControl flow_control() const { return flow_control_; }
  uint32_t backlog_mark() const { return backlog_mark_; }
  uint32_t home_lcore() const { return home_lcore_; }
  // Whether frames to other stations are received too, where the PMD can choose.
  void SetPromiscuous(bool on);
  // Descriptors that wake a sleeping lcore: one for each queue that it reads, owned by the port.
  // std::nullopt: it must poll the port.
  std::optional<std::vector<RxWait>> RxWaitsOf(uint32_t lcore) const;

  // ---- Lcores
  // The first `handed_off` frames come from another lcore's ring.
  struct Received {
    uint32_t count;
    uint32_t handed_off;
  };
  Received Receive(uint32_t lcore, rte_mbuf** frames, uint32_t count);
  bool Pending(uint32_t lcore) const;
  // After a full burst: whether more frames wait in a receive ring of the lcore than
  // backlog_mark().
  bool IsBacklogged(uint32_t lcore);
  // Enables or disables the interrupts of the queues that the lcore reads, if it has such waits.
  void SetRxInterrupts(uint32_t lcore, bool on);
  // Any lcore that receives. Hands a received frame off to the lcore that owns its queue pair.
  // False, and the caller keeps the frame: the ring to that lcore is full.
  bool HandOffToLcore(rte_mbuf* frame, uint32_t to_lcore);
  // Takes ownership of up to `count` frames, in order; returns how many. `lcores`: see
  // Wire::Transmit.
  uint32_t Transmit(uint32_t lcore, rte_mbuf** frames, const uint8_t* lcores, uint32_t count);
  // The checksums of a raw frame that the port fills in (RTE_ETH_TX_OFFLOAD_*): none if the frame
  // is looped back.
  uint64_t ChecksumsOf(const rte_mbuf& frame) const;
  // Call once before a frame is sent with checksum offloads. False: the port cannot do them.
  bool Prepare(uint32_t lcore, rte_mbuf& frame) const;
  // Home lcore, once per loop: sends frames of other lcores, if the port has too few queues.
  uint32_t ServeOthers();
  bool IsHome(uint32_t lcore) const { return lcore == home_lcore_; }

 private:
  explicit EthdevPort(PortServices& services);
  absl::Status OpenEthdev(const Config& config);
  absl::Status OpenSockets(const Config& config);
  absl::Status Configure(const Config& config);
  absl::Status PassGroups();
  absl::Status SetUp(const Config& config, const rte_eth_dev_info& info);
  absl::Status SetUpAtDepth(const Config& config, const rte_eth_dev_info& info);
  absl::Status SetAddress(const roce::Mac& wanted);
  absl::Status SetMtu(const Config& config, const rte_eth_dev_info& info);
  int ConfigureQueues(uint32_t mtu, const rte_eth_dev_info& info);
  int ConfigureFor(uint32_t mtu, const rte_eth_dev_info& info);
  uint16_t RxDescriptorsFor(const Config& config, const rte_eth_dev_info& info) const;
  void WatchBacklog(const std::string& driver);
  absl::Status SetUpQueues();
  bool NeedsOwnFrames() const;
  uint32_t OwnFrames() const;
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
  uint32_t ReceiveFrom(uint32_t queue, rte_mbuf** frames, uint32_t count);
  bool PendingAt(uint32_t queue) const;
  uint32_t SendBy(uint32_t queue, rte_mbuf** frames, uint32_t count);

  static constexpr size_t kMostHeldFrames = 32;  // that the port has not taken

  PortServices& services_;
  std::string devargs_;            // as probed
  DriverDescriptors descriptors_;  // what the driver has opened
  PortSockets sockets_;
  RxWaits rx_waits_;
  std::unique_ptr<PacketSockets> packet_;  // null: the port is an ethdev
  std::unique_ptr<FramePool> own_frames_;
  bool has_usual_buffers_ = true;  // of kFrameBufferBytes
  PortSettings settings_;
  uint16_t port_ = 0;
  bool attached_ = false;
  PortQueues queues_;
  PortOffloads offloads_;
  uint16_t rx_descriptors_ = 0;  // of each queue
  uint32_t lcores_ = 1;
  bool queue_per_lcore_ = false;
  bool tells_pending_ = true;
  bool tells_descriptors_ = false;  // rte_eth_rx_descriptor_status
  bool always_promiscuous_ = false;
  bool link_brings_back_ = false;
  bool is_hardware_ = false;
  bool connects_at_start_ = false;
  bool has_rx_interrupts_ = false;  // configured with them
  uint32_t rx_ring_ = 0;
  uint32_t backlog_mark_ = 0;  // frames in a receive ring; 0: not watched
  PortFlowControl flow_control_;
  bool interrupts_watch_peer_ = false;  // and keep the link state up to date
  uint64_t reconnected_at_ns_ = 0;
  std::atomic<bool> is_started_{false};  // false: no lcore may use its queues
  uint32_t network_device_ = 0;          // its number; 0: there is none
  Fd all_groups_;                        // both only with a network device
  Fd all_stations_;
  uint32_t home_lcore_ = 0;
  uint32_t mtu_ = 0;  // of the port; a network device below may carry less
  roce::Mac mac_;
  std::array<rte_ring*, kMaxLcores> to_lcore_{};
  // The queue that an lcore polls first.
  struct alignas(kCacheLineBytes) Turn {
    uint32_t number = 0;
    Counter linearized;
  };
  std::array<Turn, kMaxLcores> turns_{};
  rte_ring* from_others_ = nullptr;
  rte_ring* from_self_ = nullptr;
  std::array<rte_mbuf*, kMostHeldFrames> held_{};
  uint32_t held_count_ = 0;
};

}  // namespace roci::dataplane
