// The manager's identifiers, their events and channels, and its deadlines.
#include "control/cm/manager.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "absl/cleanup/cleanup.h"
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
    : services_(services),
      random_(RandomSeed(services.devices.empty() ? std::nullopt
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
