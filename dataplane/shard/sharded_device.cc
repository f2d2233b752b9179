#include "dataplane/shard/sharded_device.h"

#include <rte_mbuf.h>
#include <rte_ring.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "dataplane/base/frame_pool.h"
#include "dataplane/base/frame_ring.h"
#include "dataplane/port/ethdev_port.h"
#include "dataplane/port/wire.h"
#include "dataplane/qp/shard_view.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/shard_access.h"
#include "memory/split_mix.h"
#include "roce/headers.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kSlowPathEntries = 512;  // of each kind
constexpr uint32_t kRawEntries = 256;
constexpr uint32_t kMatchedEntries = 512;

}  // namespace

absl::StatusOr<std::unique_ptr<ShardedDevice>> ShardedDevice::Open(
    Dataplane& dataplane, const DeviceClientConfig& config) {
  if ((config.wire != nullptr) == !config.devargs.empty()) {
    return absl::InvalidArgumentError("a device sits on a wire or on a DPDK port");
  }
  std::unique_ptr<ShardedDevice> device(new ShardedDevice(dataplane));
  memory::SplitMix seeds(config.seed.value_or(0));
  const auto next_seed = [&] {
    return config.seed ? static_cast<uint32_t>(seeds.Next()) : std::random_device{}();
  };
  device->qpns_ = std::make_unique<QpnSpace>(dataplane.lcore_count(), next_seed());
  device->srqns_ = std::make_unique<QpnSpace>(1, next_seed());
  if (absl::Status status = device->OpenSlowPath(); !status.ok()) return status;
  if (absl::Status status = device->OpenPort(config); !status.ok()) return status;
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

absl::Status ShardedDevice::OpenPort(const DeviceClientConfig& config) {
  if (config.wire != nullptr) {
    const std::optional<uint32_t> endpoint = config.wire->AddEndpoint(config.mac);
    if (!endpoint.has_value()) return absl::ResourceExhaustedError("the wire is full");
    wire_ = config.wire;
    wire_endpoint_ = *endpoint;
    mac_ = config.mac;
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
  return absl::OkStatus();
}

void ShardedDevice::AddLanes(const DeviceClientConfig& config, uint32_t max_frame_bytes,
                             uint32_t line_rate_kbps) {
  vendor_errors_ = config.vendor_errors;
  for (uint32_t i = 0; i < dataplane_.lcore_count(); ++i) {
    Lcore& lcore = LcoreOf(i);
    auto lane = std::make_unique<DeviceLane>(
        *this, DeviceLane::Config{.mac = mac_,
                                  .congestion = config.congestion,
                                  .wire = wire_,
                                  .ethdev = ethdev_.get(),
                                  .endpoint = wire_endpoint_,
                                  .lcore = i,
                                  .lcore_bits = qpns_->lcore_bits(),
                                  .lcore_count = dataplane_.lcore_count(),
                                  .raw = i == home_lcore_ ? raw_ : nullptr,
                                  .matched = matched_rings_.empty() ? nullptr : matched_rings_[i],
                                  .now_ns = lcore.view().now_ns});
    if (vendor_errors_ != kPlainVendorErrors) lane->vendor_errors = &vendor_errors_;
    lcore.Call(
        [&](const OnShard& shard) { lane->UseLink(shard, max_frame_bytes, line_rate_kbps); });
    lcore.AttachLane(*lane);
    lanes_.push_back(std::move(lane));
  }
}

void ShardedDevice::RemoveLanes() {
  for (size_t i = 0; i < lanes_.size(); ++i) LcoreOf(i).DetachLane(*lanes_[i]);
  if (wire_ != nullptr) wire_->RemoveEndpoint(wire_endpoint_);
  wire_ = nullptr;
  lanes_.clear();
}

ShardedDevice::~ShardedDevice() {
  RemoveLanes();
  // Before the port: frames in the ring may be in the port's own buffers.
  for (rte_ring* ring : slow_paths_) FreeFrameRing(ring);
  FreeFrameRing(raw_);
  for (rte_ring* ring : matched_rings_) FreeFrameRing(ring);
  ethdev_.reset();
}

Lcore& ShardedDevice::LcoreOf(size_t lane) {
  return ShardAccess::LcoreOf(dataplane_, static_cast<uint32_t>(lane));
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

}  // namespace roci::dataplane
