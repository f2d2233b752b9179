#include "dataplane/port/rx_wait.h"

#include <rte_ethdev.h>
#include <rte_log.h>
#include <rte_pause.h>

#include <cerrno>

#include "verbs_provider/abi/fence.h"

namespace roci::dataplane {
namespace {

// Events by which drivers report that a peer or its queues have come or gone.
constexpr rte_eth_event_type kPeerEvents[] = {RTE_ETH_EVENT_INTR_LSC, RTE_ETH_EVENT_QUEUE_STATE};

int OnPeerEvent(uint16_t, rte_eth_event_type event, void* waits, void*) {
  static_cast<RxWaits*>(waits)->NotePeerChange(event == RTE_ETH_EVENT_INTR_LSC);
  return 0;
}

}  // namespace

// net_virtio (PCI) resets the device before it finds that the bus has no interrupt vectors, and is
// unusable then.
bool RxWaits::UsesInterrupts(const rte_eth_dev_info& info, bool is_hardware) {
  const std::string driver = info.driver_name;
  if (is_hardware) return driver != "net_virtio";
  return driver == "net_vhost" || driver == "net_tap";
}

void RxWaits::Find(uint16_t port, const std::string& driver, uint16_t queues, bool has_interrupts,
                   const std::vector<int>& sockets, const DriverDescriptors& opened) {
  port_ = port;
  if (!sockets.empty()) {
    UseSockets(sockets, queues);
  } else if (driver == "net_virtio_user") {
    UseCallDescriptors(opened.EventFds(), queues);
  } else if (has_interrupts) {
    UseInterrupts(queues);
  }
  if (!waits_.empty() && waits_.front().is_interrupt) WatchPeer();
}

void RxWaits::UseSockets(const std::vector<int>& sockets, uint16_t queues) {
  if (sockets.size() != queues) return;
  for (const int fd : sockets) waits_.push_back({.fd = fd, .is_interrupt = false});
}

// A driver that cannot enable interrupts (net_tap) has descriptors that are readable while frames
// wait.
void RxWaits::UseInterrupts(uint16_t queues) {
  // Drivers that accept the configuration without having vectors log an error here.
  const uint32_t level = rte_log_get_global_level();
  rte_log_set_global_level(RTE_LOG_CRIT);
  for (uint16_t queue = 0; queue < queues; ++queue) {
    const int fd = rte_eth_dev_rx_intr_ctl_q_get_fd(port_, queue);
    const int error = fd < 0 ? -ENOTSUP : rte_eth_dev_rx_intr_enable(port_, queue);
    if (fd < 0 || (error != 0 && error != -ENOTSUP)) {
      waits_.clear();
      break;
    }
    if (error == 0) rte_eth_dev_rx_intr_disable(port_, queue);
    waits_.push_back({.fd = fd, .is_interrupt = error == 0});
  }
  rte_log_set_global_level(level);
}

// net_virtio_user makes an eventfd for the peer to call and one to kick the peer for each queue,
// receiving and sending queues in turn. With intr_conf.rxq, DPDK 22.11 would close the first ones
// twice when the port is closed.
void RxWaits::UseCallDescriptors(const std::vector<int>& eventfds, uint16_t queues) {
  constexpr size_t kPerQueuePair = 4;
  if (eventfds.size() != kPerQueuePair * queues) return;
  for (size_t i = 0; i < eventfds.size(); i += kPerQueuePair) {
    waits_.push_back({.fd = eventfds[i], .is_interrupt = true});
  }
}

std::optional<RxWait> RxWaits::Of(uint16_t queue) const {
  return queue < waits_.size() ? std::optional(waits_[queue]) : std::nullopt;
}

void RxWaits::SetInterrupt(uint16_t queue, bool on) {
  if (queue >= waits_.size() || !waits_[queue].is_interrupt) return;
  using_.fetch_add(1, std::memory_order_seq_cst);
  abi::FenceAfterExchange();
  if (on) {
    rte_eth_dev_rx_intr_enable(port_, queue);
  } else {
    rte_eth_dev_rx_intr_disable(port_, queue);
  }
  using_.fetch_sub(1, std::memory_order_release);
}

uint32_t RxWaits::CountOf(uint16_t queue) {
  using_.fetch_add(1, std::memory_order_seq_cst);
  abi::FenceAfterExchange();
  const int count = rte_eth_rx_queue_count(port_, queue);
  using_.fetch_sub(1, std::memory_order_release);
  return count < 0 ? 0 : static_cast<uint32_t>(count);
}

void RxWaits::WatchPeer() {
  for (const rte_eth_event_type event : kPeerEvents) {
    rte_eth_dev_callback_register(port_, event, OnPeerEvent, this);
  }
  watches_peer_ = true;
}

// A new peer has interrupts disabled: the lcores enable them before they sleep again. While
// net_vhost reports a change of queues, it holds the locks for which lcores wait here. While it
// reports that a peer has gone, it holds none, and lcores find no peer from now on.
void RxWaits::NotePeerChange(bool is_freed) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  while (is_freed && using_.load(std::memory_order_acquire) != 0) rte_pause();
  for (uint32_t i = 0; i < services_.lcore_count(); ++i) services_.WakeIfSleeping(i);
}

void RxWaits::Close() {
  waits_.clear();
  if (!watches_peer_) return;
  watches_peer_ = false;
  for (const rte_eth_event_type event : kPeerEvents) {
    // EAGAIN: the driver is in the callback, which does not wait for this thread.
    while (rte_eth_dev_callback_unregister(port_, event, OnPeerEvent, this) == -EAGAIN) rte_pause();
  }
}

}  // namespace roci::dataplane
