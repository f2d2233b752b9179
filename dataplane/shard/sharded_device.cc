#include "dataplane/shard/sharded_device.h"

#include <rte_mbuf.h>
#include <rte_ring.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "absl/cleanup/cleanup.h"
#include "dataplane/base/frame_pool.h"
#include "dataplane/base/frame_ring.h"
#include "dataplane/port/ethdev_port.h"
#include "dataplane/port/wire.h"
#include "dataplane/qp/completion_fault.h"
#include "dataplane/qp/qpn_space.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/shard_services.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/device_impairments.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/shard_access.h"
#include "memory/split_mix.h"
#include "roce/headers.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kSlowPathEntries = 512;  // of each kind
constexpr uint32_t kRawEntries = 256;
constexpr uint32_t kMatchedEntries = 512;
constexpr uint32_t kKbpsPerMbps = 1000;

}  // namespace

absl::StatusOr<std::unique_ptr<ShardedDevice>> ShardedDevice::Create(
    Dataplane& dataplane, const ShardedDeviceConfig& config) {
  if ((config.wire != nullptr) == !config.devargs.empty()) {
    return absl::InvalidArgumentError("a device sits on a wire or on a DPDK port");
  }
  std::unique_ptr<ShardedDevice> device(new ShardedDevice(dataplane));
  device->name_ = config.name;
  memory::SplitMix seeds(config.seed.value_or(0));
  const auto next_seed = [&] {
    return config.seed ? static_cast<uint32_t>(seeds.Next()) : std::random_device{}();
  };
  device->qpns_ = std::make_unique<QpnSpace>(dataplane.lcore_count(), next_seed());
  device->srqns_ = std::make_unique<QpnSpace>(1, next_seed());
  if (absl::Status status = device->OpenSlowPath(); !status.ok()) return status;
  if (absl::Status status = device->OpenPort(config); !status.ok()) return status;
  device->AddLanes(config);
  return device;
}

absl::Status ShardedDevice::OpenSlowPath() {
  slow_path_event_ = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!slow_path_event_.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  for (rte_ring*& ring : slow_paths_) {
    ring = MakeFrameRing("slow", kSlowPathEntries, Producers::kSeveral);
    if (ring == nullptr) return absl::ResourceExhaustedError("DPDK rings");
  }
  raw_ = MakeFrameRing("raw", kRawEntries, Producers::kSeveral);
  if (raw_ == nullptr) return absl::ResourceExhaustedError("DPDK rings");
  const uint32_t lcores = dataplane_.lcore_count();
  for (uint32_t i = 0; lcores > 1 && i < lcores; ++i) {
    matched_rings_.push_back(MakeFrameRing("matched", kMatchedEntries, Producers::kSeveral));
    if (matched_rings_.back() == nullptr) return absl::ResourceExhaustedError("DPDK rings");
  }
  return absl::OkStatus();
}

absl::Status ShardedDevice::OpenPort(const ShardedDeviceConfig& config) {
  if (config.wire != nullptr) {
    const std::optional<uint32_t> endpoint = config.wire->AddEndpoint(config.mac);
    if (!endpoint.has_value()) return absl::ResourceExhaustedError("the wire is full");
    wire_ = config.wire;
    wire_endpoint_ = *endpoint;
    mac_ = config.mac;
    link_ = {.up = true, .mtu = std::min<uint32_t>(config.mtu, kMaxMtuBytes)};
    return absl::OkStatus();
  }
  auto port = EthdevPort::Open(dataplane_, {.devargs = config.devargs,
                                            .mtu = config.mtu,
                                            .mac = config.mac,
                                            .home_lcore = home_lcore_,
                                            .settings = config.port_settings});
  if (!port.ok()) return port.status();
  ethdev_ = *std::move(port);
  mac_ = ethdev_->mac();
  link_ = ethdev_->ReadLink();
  return absl::OkStatus();
}

void ShardedDevice::AddLanes(const ShardedDeviceConfig& config) {
  congestion_ = config.congestion;
  vendor_errors_ = config.vendor_errors;
  max_frame_bytes_ = MaxFrameBytes();
  if (congestion_) line_rate_kbps_ = LineRateKbps();
  for (uint32_t i = 0; i < dataplane_.lcore_count(); ++i) {
    Lcore& lcore = LcoreOf(i);
    auto lane = std::make_unique<DeviceLane>(
        *this, DeviceLane::Config{.mac = mac_,
                                  .congestion = congestion_,
                                  .wire = wire_,
                                  .ethdev = ethdev_.get(),
                                  .endpoint = wire_endpoint_,
                                  .lcore = i,
                                  .lcore_bits = qpns_->lcore_bits(),
                                  .lcore_count = dataplane_.lcore_count(),
                                  .raw = i == home_lcore_ ? raw_ : nullptr,
                                  .matched = matched_rings_.empty() ? nullptr : matched_rings_[i],
                                  .now_ns = lcore.services().now_ns});
    if (vendor_errors_ != kPlainVendorErrors) lane->vendor_errors = &vendor_errors_;
    lcore.Call(
        [&](const OnShard& shard) { lane->UseLink(shard, max_frame_bytes_, line_rate_kbps_); });
    lcore.AttachLane(*lane);
    lanes_.push_back(std::move(lane));
  }
  if (dataplane_.has_virtual_time()) UseWireTime(config.rate_mbps);
}

ShardedDevice::ShardedDevice(Dataplane& dataplane) : dataplane_(dataplane) {}

Lcore& ShardedDevice::LcoreOf(size_t lane) {
  return ShardAccess::LcoreOf(dataplane_, static_cast<uint32_t>(lane));
}

ShardedDevice::~ShardedDevice() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    LcoreOf(i).DetachLane(*lanes_[i]);
  }
  if (wire_ != nullptr) wire_->RemoveEndpoint(wire_endpoint_);
  lanes_.clear();
  taps_.clear();  // frees held frames
  // Before the port: frames in the ring may be in the port's own buffers.
  for (rte_ring* ring : slow_paths_) FreeFrameRing(ring);
  FreeFrameRing(raw_);
  for (rte_ring* ring : matched_rings_) FreeFrameRing(ring);
  ethdev_.reset();
}

// Not counting a VLAN tag.
uint32_t ShardedDevice::MaxFrameBytes() const {
  if (!link_.up) return DeviceLane::kNoFrame;
  const bool is_bounded = ethdev_ != nullptr && ethdev_->loses_above_mtu();
  return is_bounded ? link_.mtu + roce::EthernetHeader::kBytes : DeviceLane::kAnyFrame;
}

// For congestion control, which must be on.
uint32_t ShardedDevice::LineRateKbps() const {
  uint32_t mbps = link_.speed_mbps;
  if (mbps == 0 && ethdev_ != nullptr) mbps = ethdev_->driver_speed_mbps();
  if (mbps == 0) return congestion_->line_rate_kbps;
  constexpr uint32_t kMostMbps = UINT32_MAX / kKbpsPerMbps;
  return std::max(std::min(mbps, kMostMbps) * kKbpsPerMbps, congestion_->min_rate_kbps);
}

void ShardedDevice::RefreshLink() {
  if (ethdev_ != nullptr) {
    ethdev_->Reconnect();
    const uint32_t last_speed_mbps = link_.speed_mbps;
    link_ = ethdev_->ReadLink();
    // A link that is down has no speed.
    if (link_.speed_mbps == 0) link_.speed_mbps = last_speed_mbps;
  } else {
    link_.up = link_.enabled = true;
  }
  if (is_set_down_) link_.up = link_.enabled = false;
  const uint32_t max_frame_bytes = MaxFrameBytes();
  const uint32_t line_rate_kbps = congestion_ ? LineRateKbps() : 0;
  if (max_frame_bytes == max_frame_bytes_ && line_rate_kbps == line_rate_kbps_) return;
  max_frame_bytes_ = max_frame_bytes;
  line_rate_kbps_ = line_rate_kbps;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    LcoreOf(i).Call(
        [&](const OnShard& shard) { lanes_[i]->UseLink(shard, max_frame_bytes, line_rate_kbps); });
  }
}

PortOffloads ShardedDevice::port_offloads() const {
  return ethdev_ != nullptr ? ethdev_->offloads() : PortOffloads{};
}

uint32_t ShardedDevice::port_rx_ring() const { return ethdev_ == nullptr ? 0 : ethdev_->rx_ring(); }

PortFlowControl ShardedDevice::port_flow_control() const {
  return ethdev_ == nullptr ? PortFlowControl{} : ethdev_->flow_control();
}

uint32_t ShardedDevice::port_backlog_mark() const {
  return ethdev_ == nullptr ? 0 : ethdev_->backlog_mark();
}

bool ShardedDevice::port_is_polled() const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return lane->is_polled(); });
}

uint64_t ShardedDevice::frames_linearized() const {
  return ethdev_ != nullptr ? ethdev_->linearized() : 0;
}

PortQueues ShardedDevice::port_queues() const {
  return ethdev_ == nullptr ? PortQueues{0, 0} : ethdev_->queues();
}

bool ShardedDevice::PushSlowPath(SlowPathKind kind, rte_mbuf* frame) {
  if (rte_ring_enqueue(SlowPathOf(kind), frame) != 0) return false;
  // One system call for all waiting frames: the reader checks the rings after it has cleared the
  // flag.
  if (slow_path_signalled_.exchange(true, std::memory_order_seq_cst)) return true;
  const uint64_t one = 1;
  // Fails only if the counter is full; the eventfd is then readable anyway.
  [[maybe_unused]] const ssize_t written = write(slow_path_event_.get(), &one, sizeof(one));
  return true;
}

void ShardedDevice::ForgetSlowPathEvent() {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(slow_path_event_.get(), &count, sizeof(count));
  slow_path_signalled_.exchange(false, std::memory_order_seq_cst);
}

bool ShardedDevice::ReceiveSlowPath(SlowPathKind kind, std::vector<std::byte>& frame) {
  void* taken;
  if (rte_ring_dequeue(SlowPathOf(kind), &taken) != 0) return false;
  auto* buffer = static_cast<rte_mbuf*>(taken);
  const auto* bytes = rte_pktmbuf_mtod(buffer, const std::byte*);
  frame.assign(bytes, bytes + buffer->data_len);
  rte_pktmbuf_free(buffer);
  return true;
}

absl::Status ShardedDevice::SendRaw(std::span<const std::byte> frame) {
  if (frame.size() < roce::EthernetHeader::kBytes ||
      frame.size() > size_t{kFrameBufferBytes} - kFrameOffset) {
    return absl::InvalidArgumentError("length of a raw frame");
  }
  rte_mbuf* buffer = rte_pktmbuf_alloc(dataplane_.frames().mempool());
  if (buffer == nullptr) return absl::ResourceExhaustedError("no frame buffer is free");
  const size_t length = std::max<size_t>(frame.size(), roce::kMinFrameBytes);
  char* out = rte_pktmbuf_append(buffer, static_cast<uint16_t>(length));
  std::memcpy(out, frame.data(), frame.size());
  std::memset(out + frame.size(), 0, length - frame.size());
  if (rte_ring_enqueue(raw_, buffer) != 0) {
    rte_pktmbuf_free(buffer);
    return absl::ResourceExhaustedError("the lcore is behind with raw frames");
  }
  LcoreOf(home_lcore_).WakeForShortWork();
  return absl::OkStatus();
}

void ShardedDevice::SetLocalAddresses(std::span<const roce::NetAddress> addresses) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    std::vector<roce::NetAddress> copy(addresses.begin(), addresses.end());
    LcoreOf(i).Call(
        [&](const OnShard& shard) { lanes_[i]->SetLocalAddresses(shard, std::move(copy)); });
  }
}

absl::Status ShardedDevice::AttachMulticast(QueuePair& qp, const roce::Gid& group) {
  DeviceLane& lane = DeviceLane::Of(qp.lane());
  const bool added =
      LcoreOf(lane.lcore).Call([&](const OnShard& shard) { return lane.Join(shard, group, qp); });
  return added ? absl::OkStatus() : absl::AlreadyExistsError("the queue pair is in the group");
}

absl::Status ShardedDevice::DetachMulticast(QueuePair& qp, const roce::Gid& group) {
  DeviceLane& lane = DeviceLane::Of(qp.lane());
  const bool removed =
      LcoreOf(lane.lcore).Call([&](const OnShard& shard) { return lane.Leave(shard, group, qp); });
  return removed ? absl::OkStatus() : absl::NotFoundError("the queue pair is not in the group");
}

// Adds the rule on every lcore, because any lcore may receive its frames. All tables are equal, so
// if the first accepts the rule, all do.
absl::Status ShardedDevice::AddFlow(FlowRule& rule) {
  size_t added_to = 0;
  absl::Cleanup remove = [&] { RemoveFlowFrom(added_to, rule); };
  for (; added_to < lanes_.size(); ++added_to) {
    Lcore& lcore = LcoreOf(added_to);
    const bool added =
        lcore.Call([&](const OnShard& shard) { return lanes_[added_to]->flows.Add(shard, rule); });
    if (!added) return absl::ResourceExhaustedError("different masks of flow rules");
  }
  std::move(remove).Cancel();
  if (++flow_count_ == 1 && ethdev_ != nullptr) ethdev_->SetPromiscuous(true);
  return absl::OkStatus();
}

// Removes the rule from the first `lanes` lanes.
void ShardedDevice::RemoveFlowFrom(size_t lanes, FlowRule& rule) {
  for (size_t i = 0; i < lanes; ++i) {
    LcoreOf(i).Call([&](const OnShard& shard) { lanes_[i]->flows.Remove(shard, rule); });
  }
}

void ShardedDevice::RemoveFlow(FlowRule& rule) {
  RemoveFlowFrom(lanes_.size(), rule);
  if (--flow_count_ == 0 && ethdev_ != nullptr) ethdev_->SetPromiscuous(false);
}

void ShardedDevice::CountFlow(FlowRule& rule, FlowCounters& counters) {
  // One atomic store: an lcore counts each frame in the old or the new counters.
  std::atomic_ref(rule.counters).store(&counters, std::memory_order_release);
  dataplane_.Quiesce();
}

DeviceSnapshot ShardedDevice::Snapshot() const {
  DeviceSnapshot snapshot;
  for (const auto& lane : lanes_) snapshot.Add(lane->counters);
  return snapshot;
}

PortLosses ShardedDevice::losses() const {
  return ethdev_ == nullptr ? PortLosses{} : ethdev_->losses();
}

uint32_t ShardedDevice::queue_pairs() const {
  uint32_t count = 0;
  for (const auto& lane : lanes_) count += lane->queue_pairs();
  return count;
}

}  // namespace roci::dataplane
