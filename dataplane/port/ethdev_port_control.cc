// The control path of a port: driver, queues, buffers, rings, address, start and restart, link
// state and losses.
#include <net/if.h>
#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/eal.h"
#include "dataplane/base/frame_ring.h"
#include "dataplane/base/limits.h"
#include "dataplane/port/ethdev_port.h"
#include "dataplane/port/flow_control.h"
#include "dataplane/port/link_state.h"
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

constexpr uint16_t kTxDescriptors = 512;
constexpr uint16_t kVirtualRxDescriptors = 512;
// Of all receive queues together, if they use the daemon's common pool.
constexpr uint32_t kCommonRxDescriptors = 2048;
// Frames of a pool of the port's own beside those in its receive rings.
constexpr uint32_t kFramesBesideRings = 2048;
constexpr uint32_t kHandOffEntries = 1024;
// Fill of a NIC's receive ring from which frames are handled as CE-marked.
constexpr uint32_t kBacklogPercent = 50;
// Per queue: net_af_xdp holds 2048 for the kernel and as many for sending.
constexpr uint32_t kSmallFrames = 8192;
constexpr uint32_t kLargeFrames = 4096;
constexpr uint16_t kLargeBufferBytes = 16384 + RTE_PKTMBUF_HEADROOM;
constexpr uint16_t kRoundBufferBytes = 8192 + RTE_PKTMBUF_HEADROOM;

absl::Status DpdkError(int error, const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", rte_strerror(error < 0 ? -error : error)));
}

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
  rx_descriptors_ = RxDescriptorsFor(config, info);
  const PortOffloads offloads = offloads_;
  absl::Status set_up = SetUp(config, info);
  if (absl::IsResourceExhausted(set_up) && settings_.rx_ring == 0) {
    // Nobody has asked for rings that deep.
    offloads_ = offloads;
    rx_descriptors_ = std::min<uint16_t>(rx_descriptors_, kVirtualRxDescriptors);
    set_up = SetUp(config, info);
  }
  if (!set_up.ok()) return set_up;
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

// For each queue.
uint16_t EthdevPort::RxDescriptorsFor(const Config& config, const rte_eth_dev_info& info) const {
  const bool is_virtio = devargs_.starts_with("net_virtio_user");
  if (settings_.rx_ring != 0 && (is_hardware_ || is_virtio)) {
    return static_cast<uint16_t>(settings_.rx_ring);
  }
  if (is_hardware_) return static_cast<uint16_t>(AutomaticRxRing(info, config.mtu));
  return static_cast<uint16_t>(
      std::min<uint32_t>(kVirtualRxDescriptors, kCommonRxDescriptors / queues_.rx));
}

// The ring of a port that pushes back (shared memory with the peer) may be full all the time and
// loses nothing, so only NICs are watched unless the configuration says so.
void EthdevPort::WatchBacklog(const std::string& driver) {
  rx_ring_ = is_hardware_ ? rx_descriptors_ : RxRingOf(devargs_);
  const uint32_t percent =
      settings_.rx_backlog_percent.value_or(is_hardware_ ? kBacklogPercent : 0);
  const uint32_t mark = rx_ring_ * percent / 100;
  // net_vhost cannot count without a peer.
  tells_descriptors_ = rte_eth_rx_descriptor_status(port_, 0, 0) >= 0;
  const bool can_count =
      tells_descriptors_ || driver == "net_vhost" || rte_eth_rx_queue_count(port_, 0) >= 0;
  backlog_mark_ = can_count ? mark : 0;
}

absl::Status EthdevPort::SetUp(const Config& config, const rte_eth_dev_info& info) {
  const PortQueues queues = queues_;
  absl::Status status = SetMtu(config, info);
  if (status.ok()) status = SetUpQueues();
  if (status.ok() || (info.rx_offload_capa & RTE_ETH_RX_OFFLOAD_SCATTER) == 0) return status;
  // The driver refuses buffers shorter than its longest frame unless frames may have several
  // segments.
  offloads_.rx |= RTE_ETH_RX_OFFLOAD_SCATTER;
  queues_ = queues;
  status = SetMtu(config, info);
  return status.ok() ? SetUpQueues() : status;
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

absl::Status EthdevPort::SetUpQueues() {
  queue_per_lcore_ = lcores_ > 1 && queues_.tx >= lcores_;
  uint16_t tx_descriptors = kTxDescriptors;
  rte_eth_dev_adjust_nb_rx_tx_desc(port_, &rx_descriptors_, &tx_descriptors);
  int error = SetUpReceiving();
  for (uint16_t queue = 0; error == 0 && queue < queues_.tx; ++queue) {
    error = rte_eth_tx_queue_setup(port_, queue, tx_descriptors, Socket(), nullptr);
  }
  if (error == -ENOMEM && NeedsOwnFrames()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for receive rings of ", rx_descriptors_, " frames in ", queues_.rx, " queues (",
        FramePool::HeapMib(OwnFrames(), kFrameBufferBytes),
        " MiB of frame buffers): lower rx_ring, or raise memory_mib or the number of huge pages"));
  }
  return error == 0 ? absl::OkStatus() : DpdkError(error, "setting the port's queues up");
}

unsigned EthdevPort::Socket() const { return static_cast<unsigned>(rte_eth_dev_socket_id(port_)); }

uint32_t EthdevPort::MostHeapMib(const PortSettings& settings, uint32_t lcores) {
  const uint32_t ring = settings.rx_ring != 0 ? settings.rx_ring : kVirtualRxDescriptors;
  return std::max(FramePool::HeapMib(kLargeFrames, kRoundBufferBytes),
                  FramePool::HeapMib(ring * lcores + kFramesBesideRings, kRoundBufferBytes));
}

// Whether the receive rings hold more frames than the common pool can spare.
bool EthdevPort::NeedsOwnFrames() const {
  return uint32_t{rx_descriptors_} * queues_.rx > kCommonRxDescriptors;
}

uint32_t EthdevPort::OwnFrames() const {
  return uint32_t{rx_descriptors_} * queues_.rx + kFramesBesideRings;
}

int EthdevPort::ReceiveWith(uint32_t frames, uint16_t buffer_bytes, FrameMemory memory) {
  auto pool = FramePool::Create(frames, buffer_bytes, memory);
  if (!pool.ok()) return -ENOMEM;
  const int error = ReceiveInto((*pool)->mempool());
  // The driver has freed the buffers of the old pool.
  own_frames_ = *std::move(pool);
  has_usual_buffers_ = buffer_bytes == kFrameBufferBytes;
  return error;
}

int EthdevPort::ReceiveInto(rte_mempool* pool) {
  int error = 0;
  for (uint16_t queue = 0; error == 0 && queue < queues_.rx; ++queue) {
    error = rte_eth_rx_queue_setup(port_, queue, rx_descriptors_, Socket(), nullptr, pool);
  }
  return error;
}

// Whether received frames may have several segments.
bool EthdevPort::Scatters() const {
  rte_eth_rxq_info info;
  return rte_eth_rx_queue_info_get(port_, 0, &info) == 0 && info.scattered_rx != 0;
}

// Some NICs fill only a round part of each buffer, which shows when they start, so that frames of
// the largest MTU do not fit. Larger buffers cost less than frames in several segments.
int EthdevPort::Start() {
  int error = rte_eth_dev_start(port_);
  if (error != 0 || !Scatters() || !has_usual_buffers_) return error;
  error = rte_eth_dev_stop(port_);
  if (error != 0) return error;
  const uint32_t frames = NeedsOwnFrames() ? OwnFrames() : kLargeFrames;
  if (ReceiveWith(frames, kRoundBufferBytes, FrameMemory::kDevices) != 0) {
    error = SetUpReceiving();  // frames will be linearized
  }
  return error != 0 ? error : rte_eth_dev_start(port_);
}

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

// A port with frames larger than the usual buffer (net_af_packet with a large framesz) gets larger
// receive buffers; one that needs smaller buffers (net_af_xdp) gets smaller ones.
int EthdevPort::SetUpReceiving() {
  if (const std::optional<uint16_t> bytes = BufferBytesOf(devargs_); bytes.has_value()) {
    return ReceiveWith(kSmallFrames * queues_.rx, *bytes, FrameMemory::kOwn);
  }
  const bool is_deep = NeedsOwnFrames();
  const int error = is_deep ? ReceiveWith(OwnFrames(), kFrameBufferBytes, FrameMemory::kDevices)
                            : ReceiveInto(services_.frames().mempool());
  if (error == 0 && !is_deep) {
    own_frames_.reset();  // of a failed attempt; no queue uses them
    has_usual_buffers_ = true;
  }
  if (error == 0 || is_deep) return error;
  return ReceiveWith(kLargeFrames, kLargeBufferBytes, FrameMemory::kOwn);
}

// `mtu` 0: the PMD's choice. A NIC distributes frames by a hash over addresses and ports; the UDP
// source port differs between connections.
int EthdevPort::ConfigureQueues(uint32_t mtu, const rte_eth_dev_info& info) {
  rte_eth_conf eth_config;
  std::memset(&eth_config, 0, sizeof(eth_config));
  eth_config.rxmode.mtu = mtu;
  eth_config.intr_conf.lsc = interrupts_watch_peer_;
  eth_config.intr_conf.rxq = has_rx_interrupts_;
  eth_config.rxmode.offloads = offloads_.rx;
  eth_config.txmode.offloads = offloads_.tx;
  const uint64_t hashes = info.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP);
  if (queues_.rx > 1 && hashes != 0 && IsHardware(info)) {
    eth_config.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    eth_config.rx_adv_conf.rss_conf.rss_hf = hashes;
  }
  return rte_eth_dev_configure(port_, queues_.rx, queues_.tx, &eth_config);
}

// Configures the port with as many queues as it accepts.
int EthdevPort::ConfigureFor(uint32_t mtu, const rte_eth_dev_info& info) {
  for (;; queues_ = FewerThan(queues_, lcores_)) {
    int error = ConfigureQueues(mtu, info);
    // Some PMDs accept only their own MTU.
    if (error == -EINVAL || error == -ENOTSUP) error = ConfigureQueues(0, info);
    if (error == 0 || queues_.rx == 1) return error;
  }
}

// Configures the port with the supported MTU that is nearest to the wanted one.
absl::Status EthdevPort::SetMtu(const Config& config, const rte_eth_dev_info& info) {
  const uint32_t most = info.max_rx_pktlen > kEthernetOverheadBytes
                            ? info.max_rx_pktlen - kEthernetOverheadBytes
                            : kStandardMtuBytes;
  const uint32_t wanted = std::min<uint32_t>({config.mtu, most, info.max_mtu});
  const PortQueues queues = queues_;
  int error = ConfigureFor(wanted, info);
  if (error != 0 && has_rx_interrupts_) {
    has_rx_interrupts_ = false;
    queues_ = queues;
    error = ConfigureFor(wanted, info);
  }
  if (error != 0 && !offloads_.none()) {
    // The port may not support its offloads together, or not with its peer.
    offloads_ = {.rx = offloads_.rx & RTE_ETH_RX_OFFLOAD_SCATTER, .tx = 0};
    queues_ = queues;
    error = ConfigureFor(wanted, info);
  }
  if (error != 0) return DpdkError(error, "configuring the port");
  uint16_t mtu = 0;
  mtu_ = rte_eth_dev_get_mtu(port_, &mtu) == 0 ? mtu : kStandardMtuBytes;
  // Some drivers report 1518 bytes although their buffers hold more.
  if (const std::optional<uint32_t> room = RoomOf(devargs_)) mtu_ = std::min(config.mtu, *room);
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

uint32_t EthdevPort::driver_speed_mbps() const {
  rte_eth_link link;
  if (packet_ != nullptr || rte_eth_link_get_nowait(port_, &link) != 0) return 0;
  return link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
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

uint64_t EthdevPort::linearized() const {
  uint64_t sum = 0;
  for (const Turn& turn : turns_) sum += turn.linearized.value();
  return sum;
}

PortOffloads EthdevPort::offloads() const {
  // A driver may still report scattering when it has larger buffers.
  const bool in_pieces = packet_ == nullptr && has_usual_buffers_ && Scatters();
  const uint64_t pieces = in_pieces ? RTE_ETH_RX_OFFLOAD_SCATTER : 0;
  return {.rx = offloads_.rx | pieces, .tx = offloads_.tx};
}

}  // namespace roci::dataplane
