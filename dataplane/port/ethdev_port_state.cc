// A port while it is in use: start, connections with its peer, link state, losses, and what it
// receives.
#include <rte_ethdev.h>
#include <rte_log.h>

#include <optional>

#include "dataplane/base/clock.h"
#include "dataplane/base/eal.h"
#include "dataplane/port/ethdev_port.h"
#include "dataplane/port/link_state.h"
#include "dataplane/port/network_device.h"
#include "dataplane/port/packet_sockets.h"

namespace roci::dataplane {

// A port that connects at start exists without its peer, with its link down.
int EthdevPort::TryToStart() {
  if (!connects_at_start_) {
    int error = -EBUSY;
    RunWherePeerIsWatched([&] { error = Start(); });
    is_started_ = error == 0;
    return error;
  }
  // The driver logs an error on each attempt without a peer.
  const uint32_t level = rte_log_get_global_level();
  rte_log_set_global_level(RTE_LOG_CRIT);
  reconnected_at_ns_ = Clock::Monotonic();
  is_started_ = Start() == 0;
  rte_log_set_global_level(level);
  return 0;
}

// net_virtio_user (DPDK 22.11) accepts and drops peers when its link is read, and in alarms that it
// sets then. This is not thread-safe, and closing the port does not remove the alarms and the
// interrupt handler, which then use freed memory. So start and close run on the interrupt thread.
bool EthdevPort::RunWherePeerIsWatched(const std::function<void()>& work) {
  if (interrupts_watch_peer_) return RunOnInterruptThread(work);
  work();
  return true;
}

void EthdevPort::Reconnect() {
  constexpr uint64_t kPeriodNs = kNsPerSecond;
  if (!connects_at_start_ || Clock::Monotonic() - reconnected_at_ns_ < kPeriodNs || ReadLink().up)
    return;
  if (is_started_) {
    is_started_ = false;
    services_.Quiesce();
    rte_eth_dev_stop(port_);
  }
  TryToStart();
}

LinkState EthdevPort::ReadLink() const {
  rte_eth_link link;
  LinkState state{.up = packet_ != nullptr, .mtu = mtu_};
  if (packet_ == nullptr) {
    state.up = rte_eth_link_get_nowait(port_, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
  }
  if (network_device_ != 0) {
    TakeErrors(sockets_.descriptors());
    return OnNetworkDevice(state, ReadNetworkDevice(network_device_));
  }
  if (is_hardware_ && state.up) state.speed_mbps = driver_speed_mbps();
  return state;
}

uint32_t EthdevPort::driver_speed_mbps() const {
  rte_eth_link link;
  if (packet_ != nullptr || rte_eth_link_get_nowait(port_, &link) != 0) return 0;
  return link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
}

PortLosses EthdevPort::losses() {
  if (packet_ != nullptr) {
    PortLosses losses = packet_->losses();
    losses.rx_missed = sockets_.missed();
    return losses;
  }
  rte_eth_stats stats{};
  if (rte_eth_stats_get(port_, &stats) != 0) return {};
  return {.rx_missed = stats.imissed + sockets_.missed(),
          .rx_errors = stats.ierrors,
          .rx_no_buffer = stats.rx_nombuf,
          .tx_errors = stats.oerrors};
}

uint64_t EthdevPort::linearized() const {
  uint64_t sum = 0;
  for (const Turn& turn : turns_) sum += turn.linearized.value();
  return sum;
}

void EthdevPort::SetPromiscuous(bool on) {
  if (always_promiscuous_) return;
  if (network_device_ != 0) {
    all_stations_ = on ? HoldReception(network_device_, Reception::kAllStations) : Fd();
  } else if (on) {
    rte_eth_promiscuous_enable(port_);
  } else {
    rte_eth_promiscuous_disable(port_);
  }
}

std::optional<std::vector<RxWait>> EthdevPort::RxWaitsOf(uint32_t lcore) const {
  std::vector<RxWait> waits;
  for (uint32_t queue = FirstQueueOf(lcore); queue < queues_.rx; queue += lcores_) {
    const std::optional<RxWait> wait = rx_waits_.Of(static_cast<uint16_t>(queue));
    if (!wait.has_value()) return std::nullopt;
    waits.push_back(*wait);
  }
  return waits;
}

}  // namespace roci::dataplane
