#include "control/device/device.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "control/device/users.h"
#include "control/loop/log.h"
#include "control/net/paths.h"
#include "roce/parse.h"

namespace roci::control {
namespace {

// Frames of each kind handled per wake-up, so that a flood cannot block the control thread. The
// rest is handled after other events.
constexpr uint32_t kSlowPathBudget = 32;

// Values of enum ibv_port_state, of the physical states (IBTA vol 1, 14.2.5.6), of the link layer.
constexpr uint32_t kPortDown = 1;
constexpr uint32_t kPortActive = 4;
constexpr uint8_t kPhysicalPolling = 2;
constexpr uint8_t kPhysicalDisabled = 3;
constexpr uint8_t kPhysicalLinkUp = 5;
constexpr uint8_t kLinkLayerEthernet = 2;
constexpr uint8_t kGrhRequired = 1;

// Width and speed codes (IBTA vol 1, 14.2.5.6) by their common rate.
struct LinkRate {
  uint32_t mbps;
  uint8_t width;  // 1: 1x, 2: 4x, 4: 8x
  uint8_t speed;  // 1: 2.5, 4: 10, 32: 25, 64: 50, 128: 100 Gb/s per lane
};
constexpr LinkRate kLinkRates[] = {{2'500, 1, 1},    {10'000, 1, 4},    {25'000, 1, 32},
                                   {40'000, 2, 4},   {50'000, 1, 64},   {100'000, 2, 32},
                                   {200'000, 2, 64}, {400'000, 2, 128}, {800'000, 4, 128}};

const LinkRate& RateFor(uint32_t mbps) {
  for (const LinkRate& rate : kLinkRates) {
    if (mbps <= rate.mbps) return rate;
  }
  return kLinkRates[std::size(kLinkRates) - 1];
}

// The cache keeps half of its places for resolved peers, whatever the users wait for.
static_assert(DeviceLimits().max_unresolved_peers <= Neighbours::kMaxEntries / 2);
static_assert(DeviceLimits().max_path_waits <= Neighbours::kMaxWaiters);

// Of the quotas: attached groups in the network of each VLAN, and groups of identifiers. And one
// for each of the device's addresses. (Each VLAN has an address.)
size_t MostGroups(const DeviceLimits& limits) {
  return size_t{limits.max_multicast_groups} * AddressTable::kMostEntries +
         limits.max_multicast_joins + AddressTable::kMostEntries;
}

// The counters of PortInfo have 16 bits and saturate (IBTA vol 1, 14.2.5.6).
uint32_t ViolationCount(const dataplane::DeviceSnapshot& snapshot, roce::DropReason reason) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(snapshot.drops[static_cast<size_t>(reason)], UINT16_MAX));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> Device::Create(dataplane::Dataplane& dataplane,
                                                       dataplane::Wire* wire,
                                                       const DeviceConfig& config,
                                                       const DeviceLimits& limits,
                                                       EventLoop& loop) {
  dataplane::DeviceClientConfig lower;
  lower.name = config.name;
  lower.wire = wire;
  lower.devargs = config.port;
  if (config.mac) lower.mac = *config.mac;
  lower.port_settings = config.port_settings;
  lower.mtu = config.mtu;
  lower.congestion = config.congestion;
  lower.vendor_errors = config.personality.vendor_errors;
  lower.rate_mbps = config.rate_mbps;
  lower.seed = config.seed;
  absl::StatusOr<std::unique_ptr<dataplane::DeviceClient>> port =
      dataplane::DeviceClient::Create(dataplane, lower);
  if (!port.ok()) {
    return absl::Status(port.status().code(),
                        absl::StrCat(config.name, ": ", port.status().message()));
  }
  if (!roce::PathMtuForEthernetMtu((*port)->mtu())) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.name, ": an MTU of ", (*port)->mtu(), " bytes is too small for RoCE"));
  }
  std::unique_ptr<Device> device(
      new Device(config, Smaller(limits, config.personality), loop, *std::move(port)));
  const absl::Status status = device->Start();
  if (!status.ok()) return status;
  return device;
}

Device::Device(const DeviceConfig& config, const DeviceLimits& limits, EventLoop& loop,
               std::unique_ptr<dataplane::DeviceClient> dataplane)
    : config_(config),
      limits_(limits),
      loop_(loop),
      dataplane_(std::move(dataplane)),
      addresses_(dataplane_->mac(), config.addresses, config.gateway4, config.gateway6,
                 config.vlans, config.routes),
      neighbours_(addresses_),
      groups_(addresses_, Eui64(addresses_.mac()), MostGroups(limits)),
      quotas_(limits),
      random_(config.seed.value_or(0)) {}

uint64_t Device::RandomNumber() {
  if (config_.seed) return random_.Next();
  uint64_t number = 0;
  return getrandom(&number, sizeof(number), GRND_NONBLOCK) == sizeof(number) ? number : 0;
}

Device::~Device() { loop_.Forget(slow_path_watch_); }

absl::Status Device::Start() {
  TellDataplaneAddresses();
  const absl::StatusOr<EventLoop::Watch> watch =
      loop_.Add(dataplane_->slow_path_fd(), EPOLLIN, [this](uint32_t) { DrainSlowPath(); });
  if (!watch.ok()) return watch.status();
  slow_path_watch_ = *watch;
  loop_.AddDeadline([this] { return NextTimeout(); },
                    [this](roce::TimeNs now) { HandleTimeout(now); });
  const auto send = [this](const Frame& frame) { SendFrame(frame); };
  for (const InterfaceAddress& entry : addresses_.entries()) neighbours_.Probe(entry.net(), send);
  neighbours_.Announce(send);
  for (const InterfaceAddress& entry : addresses_.entries()) JoinSolicitedNode(entry);
  multicast_.SetListener({[this](const roce::Gid& group) { return JoinAttachedGroup(group); },
                          [this](const roce::Gid& group) { LeaveAttachedGroup(group); }});
  return absl::OkStatus();
}

void Device::TellDataplaneAddresses() {
  std::vector<roce::NetAddress> own;
  for (const InterfaceAddress& entry : addresses_.entries()) own.push_back(entry.net());
  dataplane_->Do(dataplane::SetLocalAddresses{own});
}

absl::StatusOr<uint32_t> Device::AddAddress(const InterfaceAddress& address) {
  const bool is_new_vlan = !addresses_.HasVlan(address.vlan);
  const absl::StatusOr<uint32_t> index = addresses_.Add(address);
  if (!index.ok()) return index.status();
  TellDataplaneAddresses();
  ChangePaths();
  if (is_new_vlan) {
    const InterfaceAddress link_local =
        *addresses_.At(*addresses_.IndexOf({LinkLocal(addresses_.mac()), address.vlan}));
    if (link_local.net() != address.net()) Appear(link_local);
    JoinAttachedGroups(address.vlan);
  }
  Appear(address);
  DeliverAnswers();
  return *index;
}

absl::Status Device::RemoveAddress(const roce::NetAddress& address) {
  const std::vector<InterfaceAddress> before(addresses_.entries().begin(),
                                             addresses_.entries().end());
  const absl::Status status = addresses_.Remove(address);
  if (!status.ok()) return status;
  TellDataplaneAddresses();
  ChangePaths();
  for (const InterfaceAddress& entry : before) {
    if (!addresses_.IsOwn(entry.net())) Disappear(entry);
  }
  if (!addresses_.HasVlan(address.vlan)) LeaveAttachedGroups(address.vlan);
  return status;
}

absl::Status Device::AddRoute(const Route& route) {
  const absl::Status status = addresses_.AddRoute(route);
  ChangePaths();
  return status;
}

absl::Status Device::RemoveRoute(const InterfaceAddress& network,
                                 const std::optional<roce::Gid>& gateway) {
  const absl::Status status = addresses_.RemoveRoute(network, gateway);
  ChangePaths();
  return status;
}

void Device::LinkLost() {
  neighbours_.DropResolved();
  ChangePaths();
}

void Device::SetPlugged(bool plugged) {
  is_plugged_ = plugged;
  dataplane_->Do(dataplane::SetLinkDown{!plugged});
  dataplane_->Do(dataplane::RefreshLink{});
  if (!plugged) LinkLost();
}

void Device::ChangePaths() {
  if (++paths_ == 0) paths_ = 1;
  if (paths_listener_) paths_listener_();
}

void Device::Appear(const InterfaceAddress& own) {
  neighbours_.Forget(own.net());
  const auto send = [this](const Frame& frame) { SendFrame(frame); };
  neighbours_.Probe(own.net(), send);
  neighbours_.AnnounceOne(own.net(), send);
  JoinSolicitedNode(own);
}

void Device::Disappear(const InterfaceAddress& own) {
  neighbours_.Forget(own.net());
  Leave(solicited_node_groups_, own.net());
}

bool Device::Join(GroupReferences& references, const roce::NetAddress& key,
                  const roce::NetAddress& group) {
  GroupReports::Reference& reference = references[key];
  if (reference.ok()) return true;
  reference = groups_.Join(MonotonicNow(), group, [this](const Frame& frame) { SendFrame(frame); });
  if (reference.ok()) return true;
  references.erase(key);
  return false;
}

void Device::Leave(GroupReferences& references, const roce::NetAddress& key) {
  const auto it = references.find(key);
  if (it == references.end()) return;
  groups_.Leave(std::move(it->second), [this](const Frame& frame) { SendFrame(frame); });
  references.erase(it);
}

bool Device::JoinAttachedGroup(const roce::Gid& group) {
  for (const uint16_t vlan : addresses_.Vlans()) {
    if (Join(attached_groups_, {group, vlan}, {group, vlan})) continue;
    LeaveAttachedGroup(group);
    return false;
  }
  return true;
}

void Device::LeaveAttachedGroup(const roce::Gid& group) {
  for (const uint16_t vlan : addresses_.Vlans()) Leave(attached_groups_, {group, vlan});
}

void Device::JoinAttachedGroups(uint16_t vlan) {
  for (const roce::Gid& group : multicast_.Groups()) {
    if (Join(attached_groups_, {group, vlan}, {group, vlan})) continue;
    Log(LogArea::kNeighbours, LogLevel::kWarning,
        "%s: too many multicast groups: %s is not joined in VLAN %u", name().c_str(),
        IpText(group).c_str(), unsigned{vlan});
  }
}

void Device::LeaveAttachedGroups(uint16_t vlan) {
  for (const roce::Gid& group : multicast_.Groups()) Leave(attached_groups_, {group, vlan});
}

roce::PathMtu Device::max_path_mtu() const {
  return roce::PathMtuForEthernetMtu(dataplane_->mtu()).value_or(roce::PathMtu::k256);
}

uint32_t Device::rate_mbps() const {
  const uint32_t measured = dataplane_->link().speed_mbps;
  return measured != 0 ? measured : config_.rate_mbps;
}

void Device::DescribePort(roci_abi_query_port_response& out) const {
  dataplane_->Do(dataplane::RefreshLink{});
  const dataplane::LinkState& link = dataplane_->link();
  const LinkRate& rate = RateFor(rate_mbps());
  out.state = link.up ? kPortActive : kPortDown;
  out.phys_state = link.up ? kPhysicalLinkUp : link.enabled ? kPhysicalPolling : kPhysicalDisabled;
  out.max_mtu = static_cast<uint32_t>(roce::PathMtu::k4096);
  out.active_mtu = static_cast<uint32_t>(max_path_mtu());
  out.gid_table_length = addresses_.size();
  out.port_cap_flags = kPortCapabilities;
  out.max_message_size = roce::kMaxMessageBytes;
  const dataplane::DeviceSnapshot snapshot = dataplane_->Snapshot();
  out.bad_pkey_counter = ViolationCount(snapshot, roce::DropReason::kPkey);
  out.qkey_violation_counter = ViolationCount(snapshot, roce::DropReason::kQkey);
  out.pkey_table_length = 1;
  out.active_width = rate.width;
  out.active_speed = rate.speed;
  out.active_speed_ex = rate.speed;
  out.max_vl_num = 1;
  out.link_layer = kLinkLayerEthernet;
  out.flags = kGrhRequired;
}

absl::StatusOr<std::optional<roce::Path>> Device::FindPath(const roci_abi_ah_attr& attr,
                                                           roce::Qpn local, roce::Qpn remote,
                                                           const std::shared_ptr<User>& user,
                                                           PathDone later, uint64_t& number) {
  absl::StatusOr<PathPlan> plan = PlanPath(addresses_, attr, local, remote);
  if (!plan.ok()) return plan.status();
  if (plan->resolved) return plan->path;
  const roce::NetAddress next_hop{plan->next_hop, plan->path.vlan()};
  const roce::TimeNs now = MonotonicNow();
  if (const std::optional<roce::Mac> mac = neighbours_.Find(now, next_hop)) {
    plan->path.dst_mac = *mac;
    return plan->path;
  }
  DeviceQuotas& quotas = user->QuotasOf(limits_, quotas_);
  absl::StatusOr<PeerWaits::Wait> wait =
      peer_waits_.Begin(next_hop, quotas.path_waits, quotas.unresolved_peers);
  if (!wait.ok()) return wait.status();
  const uint64_t waiter = ++last_waiting_;
  neighbours_.Resolve(now, plan->path.src_gid, next_hop, waiter,
                      [this](const Frame& frame) { SendFrame(frame); });
  waiting_.emplace(waiter, Waiting{plan->path, std::move(later), user, *std::move(wait)});
  number = waiter;
  loop_.Post([this] { DeliverAnswers(); });  // Resolve may have failed already: full table
  return std::nullopt;
}

void Device::CancelPath(uint64_t number) {
  const auto it = waiting_.find(number);
  if (it == waiting_.end()) return;
  neighbours_.Cancel(it->second.wait.peer(), number);
  waiting_.erase(it);
}

void Device::HandleTimeout(roce::TimeNs now) {
  neighbours_.HandleTimeout(now, [this](const Frame& frame) { SendFrame(frame); });
  groups_.HandleTimeout(now, [this](const Frame& frame) { SendFrame(frame); });
  DeliverAnswers();
}

bool Device::JoinGroup(const roce::NetAddress& group) {
  const auto it = joined_groups_.emplace(group, GroupReports::Reference());
  absl::Cleanup undo = [&] { joined_groups_.erase(it); };
  it->second =
      groups_.Join(MonotonicNow(), group, [this](const Frame& frame) { SendFrame(frame); });
  if (!it->second.ok()) return false;
  std::move(undo).Cancel();
  return true;
}

void Device::LeaveGroup(const roce::NetAddress& group) {
  const auto it = joined_groups_.find(group);
  if (it == joined_groups_.end()) return;
  groups_.Leave(std::move(it->second), [this](const Frame& frame) { SendFrame(frame); });
  joined_groups_.erase(it);
}

// RFC 4861, 7.2.1: otherwise switches that snoop MLD would not deliver neighbour solicitations for
// the address.
void Device::JoinSolicitedNode(const InterfaceAddress& own) {
  if (own.gid.IsIpv4()) return;
  const roce::NetAddress group{SolicitedNodeGroup(own.gid), own.vlan};
  if (Join(solicited_node_groups_, own.net(), group)) return;
  Log(LogArea::kNeighbours, LogLevel::kWarning,
      "%s: too many multicast groups for %s: switches may not forward its neighbour solicitations; "
      "remove addresses of the device",
      name().c_str(), NetText(own.net()).c_str());
}

void Device::DrainSlowPath() {
  dataplane_->ForgetSlowPathEvent();
  std::vector<std::byte> frame;
  bool may_have_more = false;
  for (const dataplane::SlowPathKind kind : dataplane::kSlowPathKinds) {
    uint32_t taken = 0;
    for (; taken < kSlowPathBudget && dataplane_->ReceiveSlowPath(kind, frame); ++taken) {
      if (kind == dataplane::SlowPathKind::kMads) {
        HandleGsi(frame);
      } else {
        HandleOther(frame);
      }
    }
    may_have_more |= taken == kSlowPathBudget;
  }
  for (const roce::NetAddress& own : neighbours_.TakeConflicts()) {
    Log(LogArea::kNeighbours, LogLevel::kWarning, "%s: address conflict: %s is also used by MAC %s",
        name().c_str(), NetText(own).c_str(), MacText(neighbours_.ConflictOf(own)->mac).c_str());
  }
  if (may_have_more) {
    const uint64_t one = 1;  // wake the loop again
    [[maybe_unused]] const ssize_t m = write(dataplane_->slow_path_fd(), &one, sizeof(one));
  }
  DeliverAnswers();
}

void Device::HandleOther(std::span<const std::byte> frame) {
  const roce::TimeNs now = MonotonicNow();
  std::optional<SlowPathReason> reason = groups_.HandleFrame(now, frame);
  if (reason) {
    neighbours_.Count(*reason);
  } else {
    const uint64_t changes = neighbours_.changes();
    reason = neighbours_.HandleFrame(now, frame, [this](const Frame& reply) { SendFrame(reply); });
    if (neighbours_.changes() != changes) ChangePaths();
  }
  if (*reason == SlowPathReason::kHandled) return;
  Log(LogArea::kNeighbours, LogLevel::kDebug, "%s: frame of %zu bytes ignored: %s", name().c_str(),
      frame.size(), std::string(kSlowPathReasonNames[static_cast<size_t>(*reason)]).c_str());
}

void Device::HandleGsi(std::span<const std::byte> frame) {
  roce::Packet packet;
  if (roce::ParsePacket(frame, packet) != roce::DropReason::kNone) return;
  if (gsi_handler_ && packet.dst_mac == addresses_.mac()) gsi_handler_(packet);
}

void Device::SendGsi(const Frame& frame) {
  const roce::EthernetHeader ethernet = roce::EthernetHeader::Load(frame.data());
  if (dataplane_->on_wire() || ethernet.dst != addresses_.mac()) return SendFrame(frame);
  // An Ethernet port does not receive the frames that it sends.
  loop_.Post([this, frame] { HandleGsi(frame); });
}

void Device::SendFrame(const Frame& frame) {
  if (!dataplane_->SendRaw(frame).ok()) ++raw_send_failures_;
}

void Device::DeliverAnswers() {
  for (const Neighbours::Answer& answer : neighbours_.TakeAnswers()) {
    const auto it = waiting_.find(answer.waiter);
    if (it == waiting_.end()) continue;
    Waiting waiting = std::move(it->second);
    waiting_.erase(it);
    waiting.wait.End();  // `done` may begin another one
    waiting.path.dst_mac = answer.mac;
    if (answer.status.ok()) {
      waiting.done(waiting.path);
    } else {
      waiting.done(answer.status);
    }
  }
}

}  // namespace roci::control
