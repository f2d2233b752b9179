#include "dataplane/shard/device_client.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "dataplane/link/fault_table.h"
#include "dataplane/link/link_tap.h"
#include "dataplane/port/ethdev_port.h"
#include "dataplane/qp/completion_fault.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/rings/trace.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/device_impairments.h"
#include "dataplane/shard/sharded_device.h"
#include "roce/headers.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kKbpsPerMbps = 1000;

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceClient>> DeviceClient::Create(
    Dataplane& dataplane, const DeviceClientConfig& config) {
  auto device = ShardedDevice::Open(dataplane, config);
  if (!device.ok()) return device.status();
  std::unique_ptr<DeviceClient> client(new DeviceClient(config, *std::move(device)));
  client->device_->AddLanes(config, client->max_frame_bytes_, client->line_rate_kbps_);
  if (dataplane.has_virtual_time()) client->UseWireTime(config.rate_mbps);
  return client;
}

DeviceClient::DeviceClient(const DeviceClientConfig& config, std::unique_ptr<ShardedDevice> device)
    : name_(config.name),
      device_(std::move(device)),
      link_(FirstLink(config.mtu)),
      congestion_(config.congestion),
      max_frame_bytes_(MaxFrameBytes()),
      line_rate_kbps_(congestion_ ? LineRateKbps() : 0) {}

DeviceClient::~DeviceClient() {
  device_->RemoveLanes();
  taps_.clear();  // frees held frames, which may be in the port's own buffers
  device_.reset();
}

const roce::Mac& DeviceClient::mac() const { return device_->mac(); }

bool DeviceClient::on_wire() const { return device_->wire() != nullptr; }

LinkState DeviceClient::FirstLink(uint32_t mtu) const {
  if (device_->ethdev() != nullptr) return device_->ethdev()->ReadLink();
  return {.up = true, .mtu = std::min<uint32_t>(mtu, kMaxMtuBytes)};
}

// Not counting a VLAN tag.
uint32_t DeviceClient::MaxFrameBytes() const {
  if (!link_.up) return DeviceLane::kNoFrame;
  const bool is_bounded = device_->ethdev() != nullptr && device_->ethdev()->loses_above_mtu();
  return is_bounded ? link_.mtu + roce::EthernetHeader::kBytes : DeviceLane::kAnyFrame;
}

// For congestion control, which must be on.
uint32_t DeviceClient::LineRateKbps() const {
  uint32_t mbps = link_.speed_mbps;
  if (mbps == 0 && device_->ethdev() != nullptr) mbps = device_->ethdev()->driver_speed_mbps();
  if (mbps == 0) return congestion_->line_rate_kbps;
  constexpr uint32_t kMostMbps = UINT32_MAX / kKbpsPerMbps;
  return std::max(std::min(mbps, kMostMbps) * kKbpsPerMbps, congestion_->min_rate_kbps);
}

const LinkState& DeviceClient::Do(const RefreshLink&) {
  if (device_->ethdev() != nullptr) {
    device_->ethdev()->Reconnect();
    const uint32_t last_speed_mbps = link_.speed_mbps;
    link_ = device_->ethdev()->ReadLink();
    // A link that is down has no speed.
    if (link_.speed_mbps == 0) link_.speed_mbps = last_speed_mbps;
  } else {
    link_.up = link_.enabled = true;
  }
  if (is_set_down_) link_.up = link_.enabled = false;
  const uint32_t max_frame_bytes = MaxFrameBytes();
  const uint32_t line_rate_kbps = congestion_ ? LineRateKbps() : 0;
  if (max_frame_bytes == max_frame_bytes_ && line_rate_kbps == line_rate_kbps_) {
    return link_;
  }
  max_frame_bytes_ = max_frame_bytes;
  line_rate_kbps_ = line_rate_kbps;
  device_->ForEachLane([&](const OnShard& shard, DeviceLane& lane, size_t) {
    lane.UseLink(shard, max_frame_bytes, line_rate_kbps);
  });
  return link_;
}

PortOffloads DeviceClient::port_offloads() const {
  return device_->ethdev() != nullptr ? device_->ethdev()->offloads() : PortOffloads{};
}

uint32_t DeviceClient::port_rx_ring() const {
  return device_->ethdev() == nullptr ? 0 : device_->ethdev()->rx_ring();
}

PortFlowControl DeviceClient::port_flow_control() const {
  return device_->ethdev() == nullptr ? PortFlowControl{} : device_->ethdev()->flow_control();
}

uint32_t DeviceClient::port_backlog_mark() const {
  return device_->ethdev() == nullptr ? 0 : device_->ethdev()->backlog_mark();
}

bool DeviceClient::port_is_polled() const {
  return std::ranges::any_of(device_->lanes(), [](const auto& lane) { return lane->is_polled(); });
}

uint64_t DeviceClient::frames_linearized() const {
  return device_->ethdev() != nullptr ? device_->ethdev()->linearized() : 0;
}

PortQueues DeviceClient::port_queues() const {
  return device_->ethdev() == nullptr ? PortQueues{0, 0} : device_->ethdev()->queues();
}

void DeviceClient::ForgetSlowPathEvent() { device_->ForgetSlowPathEvent(); }

int DeviceClient::slow_path_fd() const { return device_->slow_path_fd(); }

bool DeviceClient::ReceiveSlowPath(SlowPathKind kind, std::vector<std::byte>& frame) {
  return device_->ReceiveSlowPath(kind, frame);
}

absl::Status DeviceClient::SendRaw(std::span<const std::byte> frame) {
  return device_->SendRaw(frame);
}

void DeviceClient::Do(const SetLocalAddresses& command) {
  for (size_t i = 0; i < device_->lanes().size(); ++i) {
    std::vector<roce::NetAddress> copy(command.addresses.begin(), command.addresses.end());
    device_->LcoreOf(i).Call(
        [&](const OnShard& shard) { device_->lane(i).SetLocalAddresses(shard, std::move(copy)); });
  }
}

absl::Status DeviceClient::Do(const AttachMulticast& command) {
  DeviceLane& lane = DeviceLane::Of(command.qp.lane());
  const bool added = device_->LcoreOf(lane.lcore).Call([&](const OnShard& shard) {
    return lane.Join(shard, command.group, command.qp);
  });
  return added ? absl::OkStatus() : absl::AlreadyExistsError("the queue pair is in the group");
}

absl::Status DeviceClient::Do(const DetachMulticast& command) {
  DeviceLane& lane = DeviceLane::Of(command.qp.lane());
  const bool removed = device_->LcoreOf(lane.lcore).Call([&](const OnShard& shard) {
    return lane.Leave(shard, command.group, command.qp);
  });
  return removed ? absl::OkStatus() : absl::NotFoundError("the queue pair is not in the group");
}

// Adds the rule on every lcore, because any lcore may receive its frames. All tables are equal, so
// if the first accepts the rule, all do.
absl::StatusOr<FlowId> DeviceClient::Do(const AddFlow& command) {
  const FlowId id{++last_flow_};
  FlowRule& rule = flows_.emplace(id, command.rule).first->second;
  size_t added_to = 0;
  absl::Cleanup remove = [&] {
    RemoveFlowFrom(added_to, rule);
    flows_.erase(id);
  };
  for (; added_to < device_->lanes().size(); ++added_to) {
    const bool added = device_->LcoreOf(added_to).Call(
        [&](const OnShard& shard) { return device_->lane(added_to).flows.Add(shard, rule); });
    if (!added) return absl::ResourceExhaustedError("different masks of flow rules");
  }
  std::move(remove).Cancel();
  if (flows_.size() == 1 && device_->ethdev() != nullptr) device_->ethdev()->SetPromiscuous(true);
  return id;
}

// Removes the rule from the first `lanes` lanes.
void DeviceClient::RemoveFlowFrom(size_t lanes, FlowRule& rule) {
  for (size_t i = 0; i < lanes; ++i) {
    device_->LcoreOf(i).Call(
        [&](const OnShard& shard) { device_->lane(i).flows.Remove(shard, rule); });
  }
}

void DeviceClient::Do(const RemoveFlow& command) {
  const auto flow = flows_.find(command.flow);
  assert(flow != flows_.end());
  RemoveFlowFrom(device_->lanes().size(), flow->second);
  flows_.erase(flow);
  if (flows_.empty() && device_->ethdev() != nullptr) device_->ethdev()->SetPromiscuous(false);
}

void DeviceClient::Do(const CountFlow& command) {
  const auto flow = flows_.find(command.flow);
  assert(flow != flows_.end());
  // One atomic store: an lcore counts each frame in the old or the new counters.
  std::atomic_ref(flow->second.counters).store(&command.counters, std::memory_order_release);
  device_->dataplane().Quiesce();
}

DeviceSnapshot DeviceClient::Snapshot() const {
  DeviceSnapshot snapshot;
  for (const auto& lane : device_->lanes()) snapshot.Add(lane->counters);
  return snapshot;
}

PortLosses DeviceClient::losses() const {
  return device_->ethdev() == nullptr ? PortLosses{} : device_->ethdev()->losses();
}

uint32_t DeviceClient::queue_pairs() const {
  uint32_t count = 0;
  for (const auto& lane : device_->lanes()) count += lane->queue_pairs();
  return count;
}

}  // namespace roci::dataplane
