#include "control/sysfs/sysfs_publisher.h"

#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "control/config/port_arguments.h"
#include "control/loop/log.h"
#include "dataplane/base/async_event.h"
#include "roce/work.h"
#include "verbs_provider/abi/rdma_cm.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::control {
namespace {

constexpr roce::TimeNs kBusyPeriodNs = 250'000'000;
constexpr roce::TimeNs kLinkPeriodNs = roce::kNsPerSecond;  // polling of link states

constexpr uint64_t kPort = 1;

std::string DropCounterName(size_t reason) {
  return absl::StrCat("rx_drop_", std::string(roce::kDropReasonNames[reason]));
}

std::vector<std::string> HardwareCounterNames() {
  std::vector<std::string> names;
  for (const std::string_view name : roce::kQpCounterNames) names.emplace_back(name);
  for (size_t i = 1; i < roce::kDropReasonCount; ++i) names.push_back(DropCounterName(i));
  return names;
}

uint64_t Qp(const dataplane::DeviceSnapshot& snapshot, roce::QpCounter counter) {
  return snapshot.qp[static_cast<size_t>(counter)];
}

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

// The counter names of rdma_rxe, then our own.
std::vector<CounterValue> HardwareValues(const dataplane::DeviceSnapshot& s,
                                         const std::vector<std::string>& names) {
  using roce::QpCounter;
  std::vector<CounterValue> values = {
      {"sent_pkts", s.tx_roce_packets},
      {"rcvd_pkts", s.rx_roce_packets},
      {"duplicate_request", Qp(s, QpCounter::kDuplicateRequest)},
      {"out_of_seq_request", Qp(s, QpCounter::kOutOfSequence)},
      {"rcvd_rnr_err", Qp(s, QpCounter::kRnrNaksReceived)},
      {"send_rnr_err", Qp(s, QpCounter::kRnrNaksSent)},
      {"rcvd_seq_err", Qp(s, QpCounter::kPacketSequenceErrors)},
      {"retry_exceeded_err", Qp(s, QpCounter::kRetryExceeded)},
      {"send_err", s.tx_dropped + s.tx_above_mtu + s.tx_link_down},
      {"rdma_recvs", Qp(s, QpCounter::kRxSendRequests)},
  };
  for (size_t i = 0; i < roce::kQpCounterCount; ++i) {
    values.push_back({roce::kQpCounterNames[i], s.qp[i]});
  }
  for (size_t i = 1; i < roce::kDropReasonCount; ++i) {
    values.push_back({names[roce::kQpCounterCount + i - 1], s.drops[i]});
  }
  return values;
}

std::vector<GidDescription> GidsOf(const Device& device) {
  std::vector<GidDescription> gids;
  for (const InterfaceAddress& entry : device.addresses().entries()) {
    gids.push_back({.gid = entry.gid, .type = GidType::kRoceV2, .netdev = {}});
  }
  return gids;
}

SysfsTree::Port PortOf(const Device& device) {
  const dataplane::LinkState& link = device.dataplane().link();
  return {.state = link.up ? SysfsPortState::kActive : SysfsPortState::kDown,
          .rate_mbps = device.rate_mbps(),
          .mtu = link.mtu,
          .enabled = link.enabled};
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
  description.firmware_version = kFirmwareVersion;
  description.mac = device.addresses().mac();
  description.netdev = NetworkDeviceOf(device.config().port);
  description.capability_mask = kPortCapabilities;
  description.gids = GidsOf(device);
  description.hardware_counters = HardwareCounterNames();
  const Shown shown{.device = &device, .port = PortOf(device), .last = {}};
  description.state = shown.port.state;
  description.enabled = shown.port.enabled;
  description.rate_mbps = shown.port.rate_mbps;
  description.mtu = shown.port.mtu;
  const absl::StatusOr<int> number = tree_->AddDevice(description);
  if (!number.ok()) return number.status();
  shown_.push_back(shown);
  has_ethdev_ |= !device.config().port.empty();
  return absl::OkStatus();
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
  static const std::vector<std::string> names = HardwareCounterNames();
  const std::vector<CounterValue> port = PortValues(snapshot);
  const bool changed = std::memcmp(&snapshot, &shown.last, sizeof(snapshot)) != 0;
  if (!changed) return false;
  shown.last = snapshot;
  const std::string& name = shown.device->name();
  for (const auto& [group, values] :
       {std::pair(CounterGroup::kPort, port),
        std::pair(CounterGroup::kHardware, HardwareValues(snapshot, names))}) {
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
  device.dataplane().RefreshLink();
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
  const absl::Status status = tree_->SetGids(device.name(), GidsOf(device));
  TellPrograms(device, dataplane::kEventGidChange);
  return status;
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
