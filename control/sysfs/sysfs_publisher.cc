#include "control/sysfs/sysfs_publisher.h"

#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "control/config/port_arguments.h"
#include "control/loop/log.h"
#include "control/sysfs/hardware_counters.h"
#include "dataplane/base/async_event.h"
#include "roce/work.h"
#include "verbs_provider/abi/rdma_cm.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::control {
namespace {

constexpr roce::TimeNs kBusyPeriodNs = 250'000'000;
constexpr roce::TimeNs kLinkPeriodNs = roce::kNsPerSecond;  // polling of link states

constexpr uint64_t kPort = 1;

uint64_t SumOfDrops(const dataplane::DeviceSnapshot& s) {
  // Frames that are not RoCE are not dropped but passed to the control plane.
  const uint64_t all = std::accumulate(s.drops.begin(), s.drops.end(), uint64_t{0});
  return all - s.drops[static_cast<size_t>(roce::DropReason::kNotRoce)];
}

std::vector<CounterValue> PortValues(const dataplane::DeviceSnapshot& s) {
  constexpr uint64_t kWord = 4;  // IBTA vol 1, 16.1.3.5 counts data in 4-byte words
  return {{"port_rcv_data", s.rx_bytes / kWord},
          {"port_xmit_data", s.tx_bytes / kWord},
          {"port_rcv_packets", s.rx_packets},
          {"port_xmit_packets", s.tx_packets},
          {"unicast_rcv_packets", s.rx_packets},
          {"unicast_xmit_packets", s.tx_packets},
          {"port_rcv_errors", SumOfDrops(s)},
          {"port_xmit_discards", s.tx_dropped + s.tx_above_mtu + s.tx_link_down},
          {"port_xmit_wait", s.tx_blocked}};
}

std::vector<GidDescription> GidsOf(const Device& device) {
  std::vector<GidDescription> gids;
  for (const InterfaceAddress& entry : device.addresses().entries()) {
    gids.push_back({.gid = entry.gid, .type = GidType::kRoceV2, .netdev = {}});
  }
  return gids;
}

void LogLink(const Device& device, const SysfsTree::Port& before, const SysfsTree::Port& now) {
  const char* name = device.name().c_str();
  if (now.state != before.state) {
    Log(LogArea::kDaemon, LogLevel::kNotice, "%s: link is %s", name,
        now.state == SysfsPortState::kActive ? "up" : "down");
  }
  if (now.mtu != before.mtu) {
    Log(LogArea::kDaemon, LogLevel::kNotice, "%s: MTU changed to %u, path MTU %u", name, now.mtu,
        roce::PathMtuBytes(device.max_path_mtu()));
  }
}

}  // namespace

SysfsTree::Port SysfsPublisher::PortOf(const Device& device) {
  const dataplane::LinkState& link = device.dataplane().link();
  return {.state = link.up ? SysfsPortState::kActive : SysfsPortState::kDown,
          .rate_mbps = device.rate_mbps(),
          .mtu = link.mtu,
          .enabled = link.enabled};
}

absl::StatusOr<std::unique_ptr<SysfsPublisher>> SysfsPublisher::Create(
    const Services& services, const SessionServer& server, const std::string& runtime_dir) {
  SysfsTreeOptions options;
  options.root = abi::SysfsPath(runtime_dir);
  options.socket_path = abi::SocketPath(runtime_dir);
  options.advertise_rdma_cm = true;
  options.rdma_cm_socket_path = absl::StrCat(runtime_dir, "/", ROCI_ABI_CM_SOCKET_NAME);
  absl::StatusOr<std::unique_ptr<SysfsTree>> tree = SysfsTree::Create(options);
  if (!tree.ok()) return tree.status();
  std::unique_ptr<SysfsPublisher> publisher(new SysfsPublisher(server, *std::move(tree)));
  for (const std::unique_ptr<Device>& device : services.devices) {
    const absl::Status status = publisher->Add(*device);
    if (!status.ok()) return status;
  }
  return publisher;
}

absl::Status SysfsPublisher::Add(Device& device) {
  DeviceDescription description;
  description.name = device.name();
  description.node_guid = device.node_guid();
  description.sys_image_guid = device.node_guid();
  description.node_description = device.name();
  description.firmware_version = device.identity().firmware_version;
  description.hardware_revision = absl::StrFormat("%x", device.identity().hw_ver);
  description.hca_type = device.identity().hca_type;
  description.board_id = device.identity().board_id;
  description.mac = device.addresses().mac();
  description.netdev = NetworkDeviceOf(device.config().port);
  description.capability_mask = kPortCapabilities;
  description.gids = GidsOf(device);
  description.hardware_counters = HardwareCounterNames();
  Shown shown{.device = &device, .port = PortOf(device), .last = {}, .uverbs = 0};
  description.state = shown.port.state;
  description.enabled = shown.port.enabled;
  description.rate_mbps = shown.port.rate_mbps;
  description.mtu = shown.port.mtu;
  const absl::StatusOr<int> number = tree_->AddDevice(description);
  if (!number.ok()) return number.status();
  shown.uverbs = *number;
  shown_.push_back(shown);
  has_ethdev_ |= !device.config().port.empty();
  return absl::OkStatus();
}

absl::Status SysfsPublisher::Withdraw(const Device& device) {
  std::erase_if(shown_, [&](const Shown& shown) { return shown.device == &device; });
  return tree_->RemoveDevice(device.name());
}

roce::TimeNs SysfsPublisher::NextTimeout() const {
  if (busy_ || !server_.sessions().empty() || SlowPathFrames() != slow_path_frames_) {
    return last_refresh_ + kBusyPeriodNs;
  }
  return has_ethdev_ ? last_refresh_ + kLinkPeriodNs : roce::kNever;
}

void SysfsPublisher::HandleTimeout(roce::TimeNs now) {
  last_refresh_ = now;
  slow_path_frames_ = SlowPathFrames();
  busy_ = false;
  for (Shown& shown : shown_) busy_ |= Refresh(shown);
}

bool SysfsPublisher::Refresh(Shown& shown) {
  ShowLink(shown);
  const dataplane::DeviceSnapshot snapshot = shown.device->dataplane().Snapshot();
  const std::vector<CounterValue> port = PortValues(snapshot);
  const bool changed = std::memcmp(&snapshot, &shown.last, sizeof(snapshot)) != 0;
  if (!changed) return false;
  shown.last = snapshot;
  const std::string& name = shown.device->name();
  for (const auto& [group, values] :
       {std::pair(CounterGroup::kPort, port),
        std::pair(CounterGroup::kHardware, HardwareCounters(snapshot))}) {
    const absl::Status status = tree_->SetCounters(name, group, values);
    if (!status.ok()) {
      Log(LogArea::kDaemon, LogLevel::kWarning, "%s: cannot update counters: %s", name.c_str(),
          std::string(status.message()).c_str());
    }
  }
  return true;
}

void SysfsPublisher::ShowLinks() {
  for (Shown& shown : shown_) ShowLink(shown);
}

void SysfsPublisher::ShowLink(Shown& shown) {
  Device& device = *shown.device;
  device.dataplane().Do(dataplane::RefreshLink{});
  const SysfsTree::Port before = shown.port;
  const SysfsTree::Port now = PortOf(device);
  if (now == before) return;
  shown.port = now;
  LogLink(device, before, now);
  const absl::Status status = tree_->SetPort(device.name(), now);
  if (!status.ok()) {
    Log(LogArea::kDaemon, LogLevel::kWarning, "%s", std::string(status.message()).c_str());
  }
  if (now.state == before.state) return;
  if (now.state != SysfsPortState::kActive) device.LinkLost();
  TellPrograms(device, now.state == SysfsPortState::kActive ? dataplane::kEventPortActive
                                                            : dataplane::kEventPortError);
}

void SysfsPublisher::TellPrograms(const Device& device, uint32_t event) const {
  for (const auto& [number, session] : server_.sessions()) {
    if (session->device() != &device) continue;
    session->shard()->Do(dataplane::RaiseEvent{kPort, event});
  }
}

absl::Status SysfsPublisher::ShowAddresses(const Device& device) {
  if (!UverbsNumber(device)) return absl::OkStatus();
  const absl::Status status = tree_->SetGids(device.name(), GidsOf(device));
  TellPrograms(device, dataplane::kEventGidChange);
  return status;
}

std::optional<int> SysfsPublisher::UverbsNumber(const Device& device) const {
  for (const Shown& shown : shown_) {
    if (shown.device == &device) return shown.uverbs;
  }
  return std::nullopt;
}

uint64_t SysfsPublisher::SlowPathFrames() const {
  uint64_t frames = 0;
  for (const Shown& shown : shown_) {
    const Neighbours::SlowPathCounters& counters = shown.device->neighbours().counters();
    frames = std::accumulate(counters.begin(), counters.end(), frames);
  }
  return frames;
}

}  // namespace roci::control
