// Descriptors that wake an lcore when a port receives frames: one for each receive queue.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataplane/port/driver_descriptors.h"
#include "dataplane/port/port_services.h"

struct rte_eth_dev_info;

namespace roci::dataplane {

struct RxWait {
  int fd = -1;
  // False: the descriptor is readable while frames wait. True: it signals an interrupt, which is
  // enabled before each sleep; no thread reads it, so the lcore waits for its next edge.
  bool is_interrupt = false;
};

// The RxWaits of a DPDK port.
class RxWaits {
 public:
  explicit RxWaits(PortServices& services) : services_(services) {}
  ~RxWaits() { Close(); }
  RxWaits(const RxWaits&) = delete;
  RxWaits& operator=(const RxWaits&) = delete;

  // ---- Control thread
  // Whether to configure the port with receive interrupts (intr_conf.rxq).
  static bool UsesInterrupts(const rte_eth_dev_info& info, bool is_hardware);
  // Call once the port has started. `has_interrupts`: it was configured with receive interrupts.
  // `sockets`: PortSockets::descriptors().
  void Find(uint16_t port, const std::string& driver, uint16_t queues, bool has_interrupts,
            const std::vector<int>& sockets, const DriverDescriptors& opened);
  // The same for a port of packet sockets, one for each queue.
  void UseSockets(const std::vector<int>& sockets, uint16_t queues);
  // Call before the port is closed, when no lcore uses it.
  void Close();
  // The wait of a queue; nothing: the driver offers none.
  std::optional<RxWait> Of(uint16_t queue) const;

  // ---- The lcore that reads the queue
  // Does nothing for a queue whose wait is no interrupt.
  void SetInterrupt(uint16_t queue, bool on);
  // The number of waiting frames (rte_eth_rx_queue_count).
  uint32_t CountOf(uint16_t queue);

  // ---- A thread of the driver
  // The port's peer has come or gone, or its queues have. `is_freed`: the driver frees the state of
  // the peer when this returns.
  void NotePeerChange(bool is_freed);

 private:
  void UseInterrupts(uint16_t queues);
  void UseCallDescriptors(const std::vector<int>& eventfds, uint16_t queues);
  void WatchPeer();

  PortServices& services_;
  uint16_t port_ = 0;
  std::vector<RxWait> waits_;  // by queue; empty: none
  bool watches_peer_ = false;
  std::atomic<uint32_t> using_{0};  // lcores that use the state of the peer
};

}  // namespace roci::dataplane
