// Opens and closes a port: its driver or sockets, its address, and the rings between lcores.
#include <net/if.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "dataplane/base/frame_ring.h"
#include "dataplane/port/dpdk_error.h"
#include "dataplane/port/ethdev_port.h"
#include "dataplane/port/flow_control.h"
#include "dataplane/port/memif_listener.h"
#include "dataplane/port/network_device.h"
#include "dataplane/port/packet_sockets.h"
#include "dataplane/port/port_devargs.h"
#include "dataplane/port/port_offloads.h"
#include "dataplane/port/port_queues.h"
#include "dataplane/port/port_rings.h"
#include "dataplane/port/stale_socket.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kHandOffEntries = 1024;

// Removes a stale socket where the port will listen, and checks that no other process listens
// there. Ports of net_memif share a socket; net_vhost and net_virtio_user would wait forever.
absl::Status ClearSocket(const std::string& devargs) {
  const std::string path = ListeningSocketOf(devargs);
  RemoveStaleSocket(path);
  if (devargs.starts_with("net_memif") || !IsListenedAt(path)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("'", devargs, "': another process listens at ", path));
}

// DPDK's drivers return EPERM for any bad value. `devargs`: as configured; `full`: with defaults.
absl::Status NoDevice(int error, const std::string& devargs, const std::string& full) {
  if (const std::string path = ListeningSocketOf(full); IsListenedAt(path)) {
    return absl::AlreadyExistsError(
        absl::StrCat("no DPDK device for '", devargs, "': another process listens at ", path));
  }
  const char* const hint = error == -EPERM ? " (or the driver does not take some value)" : "";
  return DpdkError(error, absl::StrCat("no DPDK device for '", devargs, "'", hint));
}

bool IsZero(const roce::Mac& mac) { return mac == roce::Mac{}; }

void MakeAddressUp(rte_ether_addr& address) {
  std::random_device random;
  for (uint8_t& byte : address.addr_bytes) byte = static_cast<uint8_t>(random());
  address.addr_bytes[0] = RTE_ETHER_LOCAL_ADMIN_ADDR;  // and unicast
}

bool IsHardware(const rte_eth_dev_info& info) {
  return std::strcmp(rte_bus_name(rte_dev_bus(info.device)), "pci") == 0;
}

// net_pcap reports its device only if it uses one for both directions.
uint32_t NetworkDeviceOf(const std::string& devargs, const rte_eth_dev_info& info) {
  return info.if_index != 0 ? info.if_index : if_nametoindex(PcapInterface(devargs).c_str());
}

}  // namespace

EthdevPort::EthdevPort(PortServices& services) : services_(services), rx_waits_(services) {}

absl::StatusOr<std::unique_ptr<EthdevPort>> EthdevPort::Open(PortServices& services,
                                                             const Config& config) {
  std::unique_ptr<EthdevPort> port(new EthdevPort(services));
  port->home_lcore_ = config.home_lcore;
  port->settings_ = config.settings;
  port->lcores_ = services.lcore_count();
  const bool has_sockets =
      !PacketInterface(config.devargs).empty() && PacketSockets::AreSupported();
  absl::Status status = has_sockets ? port->OpenSockets(config) : port->OpenEthdev(config);
  if (status.ok()) status = port->PassGroups();
  if (status.ok()) status = port->OpenRings();
  if (!status.ok()) return status;
  return port;
}

absl::Status EthdevPort::OpenEthdev(const Config& config) {
  const std::string devargs = AsEthdev(config.devargs);
  const std::string name = PortName(devargs);
  devargs_ = WithDefaults(WithRxRing(devargs, settings_.rx_ring), config.mtu);
  if (absl::Status status = ClearSocket(devargs_); !status.ok()) return status;
  // An existing port (a PCI device of the allow list, or one made by EAL arguments) is used as it
  // is.
  if (rte_eth_dev_get_port_by_name(name.c_str(), &port_) != 0) {
    if (const int error = rte_dev_probe(devargs_.c_str()); error != 0) {
      return NoDevice(error, config.devargs, devargs_);
    }
    attached_ = true;
    if (rte_eth_dev_get_port_by_name(name.c_str(), &port_) != 0) {
      return absl::NotFoundError(absl::StrCat("'", config.devargs, "' is no Ethernet device"));
    }
  }
  return Configure(config);
}

absl::Status EthdevPort::OpenSockets(const Config& config) {
  devargs_ = config.devargs;
  auto sockets = PacketSockets::Open(
      {.interface = PacketInterface(devargs_), .queues = lcores_, .joins = JoinsFrames(devargs_)},
      services_.frames().mempool());
  if (!sockets.ok()) return sockets.status();
  packet_ = *std::move(sockets);
  network_device_ = packet_->network_device();
  queues_ = {static_cast<uint16_t>(lcores_), static_cast<uint16_t>(lcores_)};
  queue_per_lcore_ = lcores_ > 1;
  mtu_ = config.mtu;
  if (absl::Status status = SetAddress(config.mac); !status.ok()) return status;
  sockets_.Use(packet_->descriptors());
  rx_waits_.UseSockets(packet_->descriptors(), queues_.rx);
  is_started_ = true;
  return FlowControlIsOff(settings_);
}

absl::Status EthdevPort::Configure(const Config& config) {
  rte_eth_dev_info info;
  if (const int error = rte_eth_dev_info_get(port_, &info); error != 0) {
    return DpdkError(error, "port information");
  }
  // net_vhost logs an error when it is asked without a peer.
  tells_pending_ = std::strcmp(info.driver_name, "net_vhost") != 0;
  link_brings_back_ = LinkBringsBack(devargs_);
  connects_at_start_ = ConnectsAtStart(devargs_);
  interrupts_watch_peer_ = std::strcmp(info.driver_name, "net_virtio_user") == 0 &&
                           (*info.dev_flags & RTE_ETH_DEV_INTR_LSC) != 0;
  is_hardware_ = IsHardware(info);
  if (!is_hardware_) network_device_ = NetworkDeviceOf(devargs_, info);
  queues_ = QueuesOf(devargs_, is_hardware_, {info.max_rx_queues, info.max_tx_queues}, lcores_);
  offloads_ = ChecksumOffloads(info, is_hardware_);
  has_rx_interrupts_ = RxWaits::UsesInterrupts(info, is_hardware_);
  if (absl::Status status = SetUp(config, info); !status.ok()) return status;
  sockets_.Find(info.driver_name, descriptors_);
  if (absl::Status status = SetAddress(config.mac); !status.ok()) return status;
  if (const int error = TryToStart(); error != 0) return DpdkError(error, "starting the port");
  rx_waits_.Find(port_, info.driver_name, queues_.rx, has_rx_interrupts_, sockets_.descriptors(),
                 descriptors_);
  WatchBacklog(info.driver_name);
  absl::StatusOr<PortFlowControl> flow_control = SetFlowControl(port_, settings_);
  if (!flow_control.ok()) return flow_control.status();
  flow_control_ = *flow_control;
  return absl::OkStatus();
}

// For neighbour discovery and multicast groups. A PMD without filters delivers all frames anyway.
absl::Status EthdevPort::PassGroups() {
  if (packet_ == nullptr) rte_eth_allmulticast_enable(port_);
  if (network_device_ == 0) return absl::OkStatus();
  all_groups_ = HoldReception(network_device_, Reception::kAllGroups);
  if (all_groups_.valid()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "the network device cannot be told to pass on frames to multicast groups, without which "
      "there is no IPv6 neighbour discovery (CAP_NET_RAW)");
}

absl::Status EthdevPort::SetAddress(const roce::Mac& wanted) {
  rte_ether_addr address;
  if (packet_ != nullptr) {
    std::memcpy(address.addr_bytes, packet_->mac().bytes.data(), sizeof(address));
  } else if (const int error = rte_eth_macaddr_get(port_, &address); error != 0) {
    return DpdkError(error, "the port's address");
  }
  const bool is_others = AddressIsOfOtherEnd(devargs_);
  if (!IsZero(wanted)) {
    const bool differs = std::memcmp(address.addr_bytes, &wanted, sizeof(address)) != 0;
    std::memcpy(address.addr_bytes, wanted.bytes.data(), wanted.bytes.size());
    // A network device keeps the kernel's address. A PMD that keeps its own may filter by it.
    const bool keeps_own =
        differs && !is_others &&
        (network_device_ != 0 || rte_eth_dev_default_mac_addr_set(port_, &address) != 0);
    if (keeps_own) SetPromiscuous(true);
    always_promiscuous_ = keeps_own;
    if (keeps_own && network_device_ != 0 && !all_stations_.valid()) {
      return absl::PermissionDeniedError(
          "the network device cannot be made promiscuous, which a mac of the device's own needs");
    }
  } else if (rte_is_zero_ether_addr(&address)) {
    MakeAddressUp(address);
  } else if (is_others) {
    address.addr_bytes[5] ^= 1;
  }
  std::memcpy(mac_.bytes.data(), address.addr_bytes, mac_.bytes.size());
  return absl::OkStatus();
}

absl::Status EthdevPort::OpenRings() {
  from_self_ = MakeFrameRing("e", kHandOffEntries, Producers::kSeveral);
  if (from_self_ == nullptr) return absl::ResourceExhaustedError("loopback ring");
  if (lcores_ == 1) return absl::OkStatus();
  const bool only_home_receives = queues_.rx == 1;
  for (uint32_t lcore = 0; lcore < lcores_; ++lcore) {
    if (only_home_receives && lcore == home_lcore_) continue;
    to_lcore_[lcore] = MakeFrameRing("e", kHandOffEntries,
                                     only_home_receives ? Producers::kOne : Producers::kSeveral);
    if (to_lcore_[lcore] == nullptr) return absl::ResourceExhaustedError("hand-off ring");
  }
  if (!queue_per_lcore_) {
    from_others_ = MakeFrameRing("e", kHandOffEntries, Producers::kSeveral);
    if (from_others_ == nullptr) return absl::ResourceExhaustedError("hand-off ring");
  }
  return absl::OkStatus();
}

EthdevPort::~EthdevPort() {
  for (rte_ring* ring : to_lcore_) FreeFrameRing(ring);
  FreeFrameRing(from_others_);
  FreeFrameRing(from_self_);
  rte_pktmbuf_free_bulk(held_.data(), held_count_);
  rx_waits_.Close();
  if (packet_ != nullptr || !rte_eth_dev_is_valid_port(port_)) return;
  EndMemifListener(MemifListenerOf(devargs_));
  RunWherePeerIsWatched([this] { Close(); });
}

void EthdevPort::Close() {
  rte_eth_dev_stop(port_);
  rte_eth_dev_info info;
  const bool removable = attached_ && rte_eth_dev_info_get(port_, &info) == 0;
  rte_eth_dev_close(port_);
  if (removable) rte_dev_remove(info.device);
}

}  // namespace roci::dataplane
