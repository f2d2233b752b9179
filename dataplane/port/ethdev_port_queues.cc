// A port's queues: their number and depth, the MTU, and the buffers for received frames, which
// depend on how the port starts.
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "dataplane/base/limits.h"
#include "dataplane/port/dpdk_error.h"
#include "dataplane/port/ethdev_port.h"
#include "dataplane/port/port_devargs.h"
#include "dataplane/port/port_offloads.h"
#include "dataplane/port/port_queues.h"
#include "dataplane/port/port_rings.h"

namespace roci::dataplane {
namespace {

constexpr uint16_t kTxDescriptors = 512;
constexpr uint16_t kVirtualRxDescriptors = 512;
// Of all receive queues together, if they use the daemon's common pool.
constexpr uint32_t kCommonRxDescriptors = 2048;
// Frames of a pool of the port's own beside those in its receive rings.
constexpr uint32_t kFramesBesideRings = 2048;
// Fill of a NIC's receive ring from which frames are handled as CE-marked.
constexpr uint32_t kBacklogPercent = 50;
// Per queue: net_af_xdp holds 2048 for the kernel and as many for sending.
constexpr uint32_t kSmallFrames = 8192;
constexpr uint32_t kLargeFrames = 4096;
constexpr uint16_t kLargeBufferBytes = 16384 + RTE_PKTMBUF_HEADROOM;
constexpr uint16_t kRoundBufferBytes = 8192 + RTE_PKTMBUF_HEADROOM;

}  // namespace

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

absl::Status EthdevPort::SetUp(const Config& config, const rte_eth_dev_info& info) {
  rx_descriptors_ = RxDescriptorsFor(config, info);
  const PortOffloads offloads = offloads_;
  const absl::Status status = SetUpAtDepth(config, info);
  if (!absl::IsResourceExhausted(status) || settings_.rx_ring != 0) return status;
  // The configuration does not ask for rings that deep.
  offloads_ = offloads;
  rx_descriptors_ = std::min<uint16_t>(rx_descriptors_, kVirtualRxDescriptors);
  return SetUpAtDepth(config, info);
}

absl::Status EthdevPort::SetUpAtDepth(const Config& config, const rte_eth_dev_info& info) {
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

// Configures the port with as many queues as it accepts.
int EthdevPort::ConfigureFor(uint32_t mtu, const rte_eth_dev_info& info) {
  for (;; queues_ = FewerThan(queues_, lcores_)) {
    int error = ConfigureQueues(mtu, info);
    // Some PMDs accept only their own MTU.
    if (error == -EINVAL || error == -ENOTSUP) error = ConfigureQueues(0, info);
    if (error == 0 || queues_.rx == 1) return error;
  }
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
  if (queues_.rx > 1 && hashes != 0 && is_hardware_) {
    eth_config.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
    eth_config.rx_adv_conf.rss_conf.rss_hf = hashes;
  }
  return rte_eth_dev_configure(port_, queues_.rx, queues_.tx, &eth_config);
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

// Whether received frames may have several segments.
bool EthdevPort::Scatters() const {
  rte_eth_rxq_info info;
  return rte_eth_rx_queue_info_get(port_, 0, &info) == 0 && info.scattered_rx != 0;
}

PortOffloads EthdevPort::offloads() const {
  // A driver may still report scattering when it has larger buffers.
  const bool in_pieces = packet_ == nullptr && has_usual_buffers_ && Scatters();
  const uint64_t pieces = in_pieces ? RTE_ETH_RX_OFFLOAD_SCATTER : 0;
  return {.rx = offloads_.rx | pieces, .tx = offloads_.tx};
}

}  // namespace roci::dataplane
