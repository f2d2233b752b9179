// The manager's identifiers, address resolution and listeners.
#include "control/cm/manager.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "control/cm/gsi.h"
#include "control/cm/verbs_numbers.h"
#include "control/loop/errno_status.h"
#include "control/loop/privilege.h"
#include "control/loop/program_name.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::control::cm {
namespace {

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

absl::Status Invalid(const char* what) { return absl::InvalidArgumentError(what); }

// The QP type of a port space's identifiers; nothing: the program chooses.
std::optional<uint8_t> QpTypeOf(PortSpace space) {
  switch (space) {
    case PortSpace::kTcp:
      return kQpRc;
    case PortSpace::kUdp:
    case PortSpace::kIpoib:
      return kQpUd;
    case PortSpace::kIb:
      break;
  }
  return std::nullopt;
}

// Of a port space in PortQuotas.
size_t IndexOf(PortSpace space) {
  switch (space) {
    case PortSpace::kTcp:
      return 0;
    case PortSpace::kUdp:
      return 1;
    case PortSpace::kIpoib:
      return 2;
    case PortSpace::kIb:
      break;
  }
  return 3;
}

bool IsConnectionQpType(uint8_t type) {
  return type == kQpRc || type == kQpUc || type == kQpUd || type == kQpXrcSend ||
         type == kQpXrcRecv;
}

// Index in the GID table of the source address for packets to `destination`: an address in its
// network, else one in the network of the gateway to it, else any with a route.
std::optional<uint32_t> SourceIndex(const AddressTable& addresses, const roce::Gid& destination) {
  std::optional<uint32_t> of_gateway, any;
  for (uint32_t i = 0; i < addresses.size(); ++i) {
    const InterfaceAddress& entry = addresses.entries()[i];
    if (entry.gid == destination || SameNetwork(entry, destination)) return i;
    const bool is_link_local = entry.gid == addresses.entries()[0].gid;
    if (is_link_local || entry.gid.IsIpv4() != destination.IsIpv4()) continue;
    const std::optional<roce::Gid> hop =
        destination.IsMulticast() ? destination : addresses.NextHop({destination, entry.vlan});
    if (!any && hop) any = i;
    if (!of_gateway && hop && SameNetwork(entry, *hop)) of_gateway = i;
  }
  return of_gateway ? of_gateway : any;
}

bool Reaches(const Port& port, const roce::Gid& destination) {
  const AddressTable& addresses = port.device.addresses();
  const std::optional<uint32_t> source = SourceIndex(addresses, destination);
  return source && addresses.NextHop({destination, addresses.At(*source)->vlan}).has_value();
}

bool IsNeighbour(const Port& port, const roce::Gid& destination) {
  const auto entries = port.device.addresses().entries();
  return std::any_of(entries.begin(), entries.end(), [&](const InterfaceAddress& entry) {
    return SameNetwork(entry, destination);
  });
}

}  // namespace

Manager::Manager(Services& services) : services_(services), random_(RandomSeed()) {
  for (const std::unique_ptr<Device>& device : services.devices) {
    EngineConfig config;
    config.ca_guid = device->node_guid();
    ports_.push_back(std::make_unique<Port>(*device, config, RandomSeed()));
    Port* port = ports_.back().get();
    device->SetGsiHandler(
        [this, port](const roce::Packet& packet) { ReceivePacket(*port, packet); });
  }
  services.loop.AddDeadline([this] { return NextTimeout(); },
                            [this](roce::TimeNs now) { HandleTimeout(now); });
}

Manager::~Manager() {
  for (const std::unique_ptr<Port>& port : ports_) port->device.SetGsiHandler(nullptr);
}

roce::TimeNs Manager::NextTimeout() const {
  roce::TimeNs next = resolves_.empty() ? roce::kNever : resolves_.begin()->first;
  for (const std::unique_ptr<Port>& port : ports_)
    next = std::min(next, port->engine.NextTimeout());
  return next;
}

void Manager::HandleTimeout(roce::TimeNs now) {
  while (!resolves_.empty() && resolves_.begin()->first <= now) {
    const uint32_t number = resolves_.begin()->second;
    CmId* id = Get(number);
    if (id->path_wait != 0) id->port->device.CancelPath(id->path_wait);
    AddressKnown(number, absl::DeadlineExceededError("address resolution timed out"));
  }
  for (const std::unique_ptr<Port>& port : ports_) {
    port->engine.HandleTimeout(now);
    Flush(*port);
  }
}

CmId* Manager::Get(uint64_t number) {
  const auto it = ids_.find(static_cast<uint32_t>(number));
  return it == ids_.end() ? nullptr : it->second.get();
}

CmId* Manager::Find(const Channel& channel, uint32_t number) {
  CmId* id = Get(number);
  return id != nullptr && id->channel == &channel && id->listener == 0 ? id : nullptr;
}

CmId* Manager::Add(Channel& channel) {
  QuotaShare share(channel.shared_user()->identifiers, 1);
  if (!share.ok()) return nullptr;
  do {
    ++last_number_;
    if (last_number_ > SharedQuotas::kMaxIdentifiers) last_number_ = 1;
  } while (ids_.contains(last_number_));
  channel.ids().insert(last_number_);
  absl::Cleanup undo = [&] { channel.ids().erase(last_number_); };
  auto id = std::make_unique<CmId>();
  id->share = std::move(share);
  id->number = last_number_;
  id->channel = &channel;
  id->psn = static_cast<uint32_t>(random_.Next()) & roce::kMask24;
  CmId* const added = ids_.emplace(last_number_, std::move(id)).first->second.get();
  std::move(undo).Cancel();
  return added;
}

absl::StatusOr<uint32_t> Manager::Create(Channel& channel, const rdma_ucm_create_id& command) {
  const std::optional<PortSpace> space = PortSpaceFrom(command.ps);
  if (!space) return Invalid("port space");
  const uint8_t qp_type = QpTypeOf(*space).value_or(command.qp_type);
  if (!IsConnectionQpType(qp_type)) return Invalid("QP type");
  CmId* id = Add(channel);
  if (id == nullptr) return absl::ResourceExhaustedError("too many identifiers");
  id->uid = command.uid;
  id->space = *space;
  id->qp_type = qp_type;
  return id->number;
}

uint32_t Manager::Destroy(CmId& id) {
  const uint32_t reported = id.events_reported;
  // Requests that the program has not seen.
  std::vector<uint32_t> unseen;
  for (const QueuedEvent& event : id.channel->events()) {
    if (event.counts_for == id.number && event.event.event == ROCI_ABI_CM_EVENT_CONNECT_REQUEST) {
      unseen.push_back(event.event.id);
    }
  }
  id.channel->RemoveEvents(id.number);
  for (const uint32_t number : unseen) {
    if (CmId* request = Get(number)) Destroy(*request);
  }
  EndResolve(id);
  for (const Membership& member : id.memberships) {
    membership_owners_.erase(member.number);
    if (!member.send_only) id.port->device.LeaveGroup(member.group);
  }
  port_table_.Give(id);
  Port* port = id.port;
  if (id.connection != 0) {
    port->engine.Release(MonotonicNow(), id.connection);
  }
  id.channel->ids().erase(id.number);
  ids_.erase(id.number);
  if (port != nullptr) Flush(*port);
  return reported;
}

bool Manager::DestroySome(Channel& channel) {
  constexpr size_t kMost = 64;  // some messages each
  // The identifiers of unfetched requests also belong to this channel.
  channel.ClearEvents();
  for (size_t left = kMost; left > 0; --left) {
    if (channel.ids().empty()) return false;
    Destroy(*Get(*channel.ids().begin()));
  }
  return true;
}

Port* Manager::PortOf(const roce::Gid& own_address) const {
  for (const std::unique_ptr<Port>& port : ports_) {
    if (port->device.addresses().IndexInAnyVlan(own_address)) return port.get();
  }
  return nullptr;
}

absl::Status Manager::Bind(CmId& id, const SocketAddress& address) {
  if (id.state != IdState::kIdle) return Invalid("already bound");
  Port* port = nullptr;
  if (!address.IsAny()) {
    port = PortOf(address.gid);
    if (port == nullptr) return StatusFromErrno(EADDRNOTAVAIL, "address");
  }
  id.port_space = id.space;
  if (address.family == AF_IB) {
    const auto space = PortSpaceOfService(id.space, address.service, address.service_mask);
    if (!space) return StatusFromErrno(EPROTONOSUPPORT, "service ID");
    id.port_space = *space;
  }
  const bool is_privileged = address.port != 0 && address.port < kFirstFreePort;
  if (is_privileged && !id.channel->MayBindPrivilegedPorts()) {
    return StatusFromErrno(EACCES, "port");
  }
  id.source = address;
  const absl::Status status = TakePort(id);
  if (!status.ok()) {
    id.source = {};
    return status;
  }
  if (address.family == AF_IB) {
    id.source.service = ServiceIdOf({id.port_space, id.source.port});
    id.source.service_mask = ~uint64_t{0};
  }
  id.port = port;
  id.bound = port;
  if (port != nullptr) {
    id.gid_index = *port->device.addresses().IndexInAnyVlan(address.gid);
    id.vlan = port->device.addresses().At(id.gid_index)->vlan;
  }
  id.state = IdState::kBound;
  return absl::OkStatus();
}

absl::Status Manager::TakePort(CmId& id) {
  const uint16_t port = id.source.port;
  if (port == 0 ||
      (port >= SharedQuotas::kFirstChosenPort && port <= SharedQuotas::kLastChosenPort)) {
    const std::shared_ptr<User>& user = id.channel->shared_user();
    id.port_share = UserShare(user, user->ports[IndexOf(id.port_space)], 1);
    if (!id.port_share.ok()) return StatusFromErrno(EADDRNOTAVAIL, "ports of the user");
  }
  const absl::Status status = port_table_.Take(id, random_.Next());
  if (!status.ok()) id.port_share = UserShare();
  return status;
}

// Chooses the device and the source address for id.destination.
absl::Status Manager::ChooseRoute(CmId& id) {
  roce::Gid& to = id.destination.gid;
  if (id.destination.IsAny()) {
    // A wildcard destination is the device itself, as in Linux.
    if (id.port == nullptr) id.port = ports_.empty() ? nullptr : ports_.front().get();
    if (id.port == nullptr) return StatusFromErrno(ENODEV, "no device");
    const AddressTable& addresses = id.port->device.addresses();
    for (uint32_t i = 0; i < addresses.size(); ++i) {
      const InterfaceAddress& own = *addresses.At(i);
      if (addresses.IsFree(i) || (own.vlan != 0 && !id.destination.IsAny())) continue;
      if (own.gid.IsIpv4() == (id.destination.family == AF_INET)) to = own.gid;
    }
    if (id.destination.IsAny()) return StatusFromErrno(EADDRNOTAVAIL, "destination");
  }
  if (to.IsMulticast() && id.port == nullptr) {
    for (const std::unique_ptr<Port>& port : ports_) {
      if (SourceIndex(port->device.addresses(), to).has_value()) {
        id.port = port.get();
        break;
      }
    }
  }
  if (id.port == nullptr) id.port = PortOf(to);
  for (const bool neighbours_only : {true, false}) {
    for (const std::unique_ptr<Port>& port : ports_) {
      if (id.port == nullptr && Reaches(*port, to) &&
          (!neighbours_only || IsNeighbour(*port, to))) {
        id.port = port.get();
      }
    }
  }
  if (id.port == nullptr) return StatusFromErrno(ENETUNREACH, "destination");
  if (!id.source.IsAny()) return absl::OkStatus();
  const std::optional<uint32_t> index = SourceIndex(id.port->device.addresses(), to);
  if (!index) return StatusFromErrno(ENETUNREACH, "no source address");
  id.gid_index = *index;
  return absl::OkStatus();
}

absl::Status Manager::ResolveAddress(CmId& id, const SocketAddress* source,
                                     const SocketAddress& destination, uint32_t timeout_ms) {
  if (id.state != IdState::kIdle && id.state != IdState::kBound) return Invalid("state");
  if (id.channel->is_full())
    return absl::ResourceExhaustedError("too many events wait in the channel");
  if (id.state == IdState::kIdle) {
    const absl::Status status =
        Bind(id, source != nullptr ? *source : AnyAddress(destination.family));
    if (!status.ok()) return status;
  }
  if (id.source.family != destination.family) return Invalid("families differ");
  id.destination = destination;
  absl::Status status = ChooseRoute(id);
  if (!status.ok()) {
    ForgetDestination(id);
    return status;
  }
  if (const int error = InjectedError(id, RDMA_USER_CM_CMD_RESOLVE_ADDR)) {
    RefuseAddress(id, error);
    return absl::OkStatus();
  }
  roci_abi_ah_attr attr = {};
  std::memcpy(attr.dgid, id.destination.gid.bytes.data(), sizeof(attr.dgid));
  attr.sgid_index = static_cast<uint8_t>(id.gid_index);
  attr.is_global = 1;
  attr.port = 1;
  attr.traffic_class = id.type_of_service;
  const uint32_t number = id.number;
  absl::StatusOr<std::optional<roce::Path>> path = id.port->device.FindPath(
      attr, roce::kGsiQpn, roce::kGsiQpn, id.channel->shared_user(),
      [this, number](const absl::StatusOr<roce::Path>& found) { AddressKnown(number, found); },
      id.path_wait);
  if (!path.ok()) {
    ForgetDestination(id);
    return path.status();
  }
  id.state = IdState::kAddressQuery;
  if (path->has_value()) {
    AddressKnown(number, **path);
    return absl::OkStatus();
  }
  id.resolve_deadline = MonotonicNow() + timeout_ms * roce::kNsPerMs;
  resolves_.insert({id.resolve_deadline, number});
  return absl::OkStatus();
}

// Undoes a failed attempt: another destination may be reached through another device.
void Manager::ForgetDestination(CmId& id) {
  id.destination = {};
  id.port = id.bound;
}

void Manager::EndResolve(CmId& id) {
  if (id.resolve_deadline != roce::kNever) resolves_.erase({id.resolve_deadline, id.number});
  id.resolve_deadline = roce::kNever;
  if (id.path_wait != 0) id.port->device.CancelPath(id.path_wait);
  id.path_wait = 0;
}

void Manager::RefuseAddress(CmId& id, int error) {
  ForgetDestination(id);
  id.state = IdState::kBound;
  PostSimple(id, ROCI_ABI_CM_EVENT_ADDR_ERROR, -error);
}

void Manager::AddressKnown(uint32_t number, const absl::StatusOr<roce::Path>& path) {
  CmId* id = Get(number);
  if (id == nullptr) return;
  id->path_wait = 0;  // the resolution has ended, nothing to cancel
  EndResolve(*id);
  if (!path.ok()) return RefuseAddress(*id, ErrnoOf(path.status()));
  id->path = *path;
  id->vlan = path->vlan();
  if (id->source.family == AF_IB) {
    id->source.gid = path->src_gid;
  } else {
    id->source = AddressFromGid(path->src_gid, id->source.port);
  }
  id->state = IdState::kAddressResolved;
  PostSimple(*id, ROCI_ABI_CM_EVENT_ADDR_RESOLVED);
}

absl::Status Manager::ResolveRoute(CmId& id) {
  if (id.state != IdState::kAddressResolved) return Invalid("no address is resolved");
  if (const int error = InjectedError(id, RDMA_USER_CM_CMD_RESOLVE_ROUTE)) {
    PostSimple(id, ROCI_ABI_CM_EVENT_ROUTE_ERROR, -error);
    return absl::OkStatus();
  }
  // The program may have changed the type of service since it resolved the address.
  id.path.traffic_class = id.type_of_service;
  if (id.path.has_vlan) {
    const AddressTable& addresses = id.port->device.addresses();
    const uint32_t priority = addresses.PriorityIn(id.vlan, id.type_of_service);
    id.path.vlan_tci = static_cast<uint16_t>(id.vlan | priority << roce::VlanTag::kPriorityShift);
  }
  id.state = IdState::kRouteResolved;
  PostSimple(id, ROCI_ABI_CM_EVENT_ROUTE_RESOLVED);
  return absl::OkStatus();
}

int Manager::InjectedError(const CmId& id, uint32_t command) {
  CallFaults& faults = id.port->device.call_faults();
  if (faults.all().empty()) return 0;
  const pid_t pid = id.channel->peer().pid;
  return faults
      .Apply(OfConnectionManager(command), ProgramName(pid), MonotonicNow(),
             static_cast<uint32_t>(pid))
      .error;
}

absl::Status Manager::Listen(CmId& id, uint32_t backlog) {
  if (id.state == IdState::kIdle) {
    const absl::Status status = Bind(id, AnyAddress(AF_INET));
    if (!status.ok()) return status;
  }
  if (id.state != IdState::kBound) return Invalid("state");
  if (id.reuse_address) {
    const absl::Status status = port_table_.CheckListen(id);
    if (!status.ok()) return status;
  }
  port_table_.Listen(id);
  id.backlog = backlog > 0 && backlog < kMaxBacklog ? backlog : kMaxBacklog;
  id.state = IdState::kListen;
  return absl::OkStatus();
}

// An exact address is preferred to a wildcard.
CmId* Manager::FindListener(const Port& port, const IpService& service, const IpHeader& header,
                            uint16_t vlan) const {
  const auto family = static_cast<uint16_t>(header.destination.IsIpv4() ? AF_INET : AF_INET6);
  CmId* wildcard = nullptr;
  for (CmId* id : port_table_.Listeners(service.space, service.port)) {
    if (id->port != nullptr && id->port != &port) continue;
    if (id->source.gid == header.destination && id->source.family == family && id->vlan == vlan) {
      return id;
    }
    const bool any_family =
        id->source.family == family || (id->source.family == AF_INET6 && !id->family_only);
    if (id->source.IsAny() && any_family) wildcard = id;
  }
  return wildcard;
}

CmId* Manager::FindServiceListener(const Port& port, const IpService& service,
                                   const roce::NetAddress& own) const {
  for (CmId* id : port_table_.Listeners(service.space, service.port)) {
    if (id->source.family != AF_IB || (id->port != nullptr && id->port != &port)) continue;
    if (id->source.IsAny() || roce::NetAddress{id->source.gid, id->vlan} == own) return id;
  }
  return nullptr;
}

absl::Status Manager::SetOption(CmId& id, uint32_t level, uint32_t name,
                                std::span<const std::byte> value) {
  const auto number = [&value]() -> int {
    int out = 0;
    std::memcpy(&out, value.data(), sizeof(out));
    return out;
  };
  if (level == RDMA_OPTION_IB) {
    if (name != RDMA_OPTION_IB_PATH) return StatusFromErrno(ENOSYS, "option");
    // Ignores the given path: RoCE resolves its own.
    if (value.empty() || value.size() % sizeof(ib_path_rec_data) != 0) return Invalid("path");
    return ResolveRoute(id);
  }
  if (level != RDMA_OPTION_ID) return StatusFromErrno(ENOSYS, "option level");
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      if (value.size() != 1) return Invalid("length");
      id.type_of_service = std::to_integer<uint8_t>(value[0]);
      return absl::OkStatus();
    case RDMA_OPTION_ID_REUSEADDR:
      if (value.size() != sizeof(int)) return Invalid("length");
      if (id.state != IdState::kIdle && (number() == 0 || id.state == IdState::kListen)) {
        return Invalid("state");
      }
      id.reuse_address = number() != 0;
      return absl::OkStatus();
    case RDMA_OPTION_ID_AFONLY:
      if (value.size() != sizeof(int)) return Invalid("length");
      if (id.state != IdState::kIdle && id.state != IdState::kBound) return Invalid("state");
      id.family_only = number() != 0;
      return absl::OkStatus();
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (value.size() != 1) return Invalid("length");
      if (id.qp_type != kQpRc && id.qp_type != kQpXrcSend) return Invalid("QP type");
      if (std::to_integer<uint8_t>(value[0]) > roce::kMaxTimeoutExponent) return Invalid("timeout");
      id.ack_timeout = std::to_integer<uint8_t>(value[0]);
      return absl::OkStatus();
    default:
      return StatusFromErrno(ENOSYS, "option");
  }
}

uint32_t Manager::Migrate(CmId& id, Channel& to) {
  if (id.channel != &to) {
    for (const QueuedEvent& event : id.channel->RemoveEvents(id.number)) {
      // Unfetched requests of a listener move with it.
      if (event.event.event == ROCI_ABI_CM_EVENT_CONNECT_REQUEST) {
        if (CmId* request = Get(event.event.id)) MoveTo(*request, to);
      }
      to.Push(event);
    }
    MoveTo(id, to);
  }
  return id.events_reported;
}

// The channels of a process may have two users: a process can lose capabilities between them.
void Manager::MoveTo(CmId& id, Channel& to) {
  to.ids().insert(id.number);
  id.channel->ids().erase(id.number);
  const User* const before = std::exchange(id.channel, &to)->user();
  if (before != to.user()) id.share = QuotaShare::Forced(to.shared_user()->identifiers, 1);
}

void Manager::Post(CmId& id, rdma_ucm_event_resp event) {
  // The program does not know this identifier before it accepts the request.
  if (id.uid == 0) return;
  event.uid = id.uid;
  event.id = id.number;
  id.channel->Push({id.number, 0, event});
}

void Manager::PostSimple(CmId& id, uint32_t event, int32_t status) {
  rdma_ucm_event_resp out = {};
  out.event = event;
  out.status = static_cast<uint32_t>(status);
  Post(id, out);
}

rdma_ucm_event_resp Manager::TakeEvent(Channel& channel) {
  const QueuedEvent queued = channel.Pop();
  if (CmId* id = Get(queued.counts_for)) {
    ++id->events_reported;
    for (Membership& member : id->memberships) {
      if (member.number == queued.membership) ++member.events_reported;
    }
    if (queued.event.event == ROCI_ABI_CM_EVENT_CONNECT_REQUEST) {
      ++id->backlog;
      if (CmId* request = Get(queued.event.id)) request->listener = 0;
    }
  }
  return queued.event;
}

}  // namespace roci::control::cm
