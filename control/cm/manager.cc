// The life of the manager's identifiers, their events and channels, and the manager's deadlines.
#include "control/cm/manager.h"

#include <algorithm>
#include <optional>
#include <random>
#include <vector>

#include "control/cm/verbs_numbers.h"
#include "control/loop/errno_status.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::control::cm {
namespace {

uint64_t RandomSeed(const std::optional<uint64_t>& configured) {
  if (configured) return memory::SplitMix::At(*configured, 1);
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

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

bool IsConnectionQpType(uint8_t type) {
  return type == kQpRc || type == kQpUc || type == kQpUd || type == kQpXrcSend ||
         type == kQpXrcRecv;
}

}  // namespace

Manager::Manager(Services& services)
    : random_(RandomSeed(services.devices.empty() ? std::nullopt
                                                  : services.devices.front()->config().seed)) {
  for (const std::unique_ptr<Device>& device : services.devices) {
    EngineConfig config;
    config.ca_guid = device->node_guid();
    ports_.push_back(std::make_unique<Port>(*device, config, RandomSeed(device->config().seed)));
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
  roce::TimeNs next = resolution_.NextTimeout();
  for (const std::unique_ptr<Port>& port : ports_)
    next = std::min(next, port->engine.NextTimeout());
  return next;
}

void Manager::HandleTimeout(roce::TimeNs now) {
  resolution_.HandleTimeout(now);
  for (const std::unique_ptr<Port>& port : ports_) {
    port->engine.HandleTimeout(now);
    Flush(*port);
  }
}

absl::StatusOr<uint32_t> Manager::Create(Channel& channel, const rdma_ucm_create_id& command) {
  const std::optional<PortSpace> space = PortSpaceFrom(command.ps);
  if (!space) return Invalid("unknown port space");
  const uint8_t qp_type = QpTypeOf(*space).value_or(command.qp_type);
  if (!IsConnectionQpType(qp_type)) return Invalid("QP type");
  CmId* id = ids_.Add(channel);
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
    if (CmId* request = ids_.Get(number)) Destroy(*request);
  }
  Port* port = id.port;
  ReleaseAll(id);
  ids_.Remove(id);
  if (port != nullptr) Flush(*port);
  return reported;
}

void Manager::ReleaseAll(CmId& id) {
  resolution_.End(id);
  memberships_.LeaveAll(id);
  bindings_.Release(id);
  if (id.connection != 0) id.port->engine.Release(MonotonicNow(), id.connection);
}

void Manager::RemoveDevice(const Device& device) {
  for (const auto& [number, id] : ids_.all()) {
    if (id->port == nullptr || &id->port->device != &device) continue;
    ReleaseAll(*id);
    id->connection = 0;
    id->port = id->bound = nullptr;
    id->state = IdState::kDisconnected;
    id->Post(ROCI_ABI_CM_EVENT_DEVICE_REMOVAL);
  }
  for (const std::unique_ptr<Port>& port : ports_) {
    if (&port->device == &device) Flush(*port);
  }
}

bool Manager::DestroySome(Channel& channel) {
  constexpr size_t kMost = 64;  // some messages each
  // The identifiers of unfetched requests also belong to this channel.
  channel.ClearEvents();
  for (size_t left = kMost; left > 0; --left) {
    if (channel.ids().empty()) return false;
    Destroy(*ids_.Get(*channel.ids().begin()));
  }
  return true;
}

uint32_t Manager::Migrate(CmId& id, Channel& to) {
  if (id.channel != &to) {
    for (const QueuedEvent& event : id.channel->RemoveEvents(id.number)) {
      // Unfetched requests of a listener move with it.
      if (event.event.event == ROCI_ABI_CM_EVENT_CONNECT_REQUEST) {
        if (CmId* request = ids_.Get(event.event.id)) ids_.Move(*request, to);
      }
      to.Push(event);
    }
    ids_.Move(id, to);
  }
  return id.events_reported;
}

rdma_ucm_event_resp Manager::TakeEvent(Channel& channel) {
  const QueuedEvent queued = channel.Pop();
  if (CmId* id = ids_.Get(queued.counts_for)) {
    ++id->events_reported;
    for (Membership& member : id->memberships) {
      if (member.number == queued.membership) ++member.events_reported;
    }
    if (queued.event.event == ROCI_ABI_CM_EVENT_CONNECT_REQUEST) {
      ++id->backlog;
      if (CmId* request = ids_.Get(queued.event.id)) request->listener = 0;
    }
  }
  return queued.event;
}

}  // namespace roci::control::cm
