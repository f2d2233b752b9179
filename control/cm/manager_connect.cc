// The manager's connections, datagram services and multicast: commands of programs to the engine,
// and events of the engine to programs.

#include <algorithm>
#include <cerrno>

#include "control/cm/gsi.h"
#include "control/cm/manager.h"
#include "control/cm/verbs_numbers.h"
#include "control/loop/errno_status.h"
#include "dataplane/base/async_event.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::control::cm {
namespace {

constexpr uint8_t kMaxRetries = 7;  // 3 bits in a REQ; of RNR NAKs: without end

absl::Status Invalid(const char* what) { return absl::InvalidArgumentError(what); }

std::span<const std::byte> DataOf(const rdma_ucm_conn_param& param) {
  return {reinterpret_cast<const std::byte*>(param.private_data), param.private_data_len};
}

template <class Param>
void CopyData(std::span<const std::byte> data, Param& out) {
  const size_t size = std::min<size_t>(data.size(), UINT8_MAX);  // as private_data_len
  std::memcpy(out.private_data, data.data(), size);
  out.private_data_len = static_cast<uint8_t>(size);
}

uint8_t TransportOf(uint8_t qp_type) {
  switch (qp_type) {
    case kQpUc:
      return static_cast<uint8_t>(TransportService::kUc);
    case kQpXrcSend:
    case kQpXrcRecv:
      return static_cast<uint8_t>(TransportService::kExtended);
    default:
      return static_cast<uint8_t>(TransportService::kRc);
  }
}

// The QP type that a request needs its listener to have.
uint8_t QpTypeOf(const Req& req) {
  switch (static_cast<TransportService>(req.transport_service)) {
    case TransportService::kUc:
      return kQpUc;
    case TransportService::kExtended:
      return kQpXrcRecv;
    default:
      return kQpRc;
  }
}

uint64_t ServiceOf(const CmId& id) {
  return id.destination.family == AF_IB ? id.destination.service
                                        : ServiceIdOf({id.space, id.destination.port});
}

// The program's private data, preceded by the IP header if the addresses are IP addresses.
std::vector<std::byte> WithHeader(const CmId& id, std::span<const std::byte> data) {
  if (id.destination.family == AF_IB) return {data.begin(), data.end()};
  IpHeader header;
  header.source_port = id.source.port;
  header.source = id.source.gid;
  header.destination = id.destination.gid;
  const IpHeaderBytes bytes = BuildIpHeader(header);
  std::vector<std::byte> out(bytes.begin(), bytes.end());
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

Ece EceOf(const rdma_ucm_ece& ece) { return {ece.vendor_id, ece.attr_mod}; }

uint32_t AccountOf(const CmId& id) { return id.channel->peer().uid; }

// The path of packets to a peer. The path fields of the peer's request apply to both directions
// (IBTA vol 1, 12.6.5), not the listener's own settings. The hop limit is each end's own.
roce::Path PathBack(const roce::Path& reply, const PathFields& primary) {
  roce::Path path = reply;
  path.traffic_class = primary.traffic_class;
  path.flow_label = primary.flow_label;
  if (path.has_vlan) {
    const uint32_t priority = primary.sl & 7u;
    path.vlan_tci = static_cast<uint16_t>(reply.vlan() | priority << roce::VlanTag::kPriorityShift);
  }
  return path;
}

// GID index of the source address for messages to `group`: the identifier's own address, or one of
// the group's family in the same VLAN; the link-local address only if there is no other.
std::optional<uint32_t> SenderTo(const CmId& id, const roce::Gid& group) {
  const AddressTable& addresses = id.port->device.addresses();
  if (id.source.gid.IsIpv4() == group.IsIpv4()) {
    return addresses.IndexOf({id.source.gid, id.vlan}).value_or(id.gid_index);
  }
  std::optional<uint32_t> found;
  for (uint32_t i = 0; i < addresses.size(); ++i) {
    const InterfaceAddress& own = *addresses.At(i);
    if (addresses.IsFree(i) || own.vlan != id.vlan || own.gid.IsIpv4() != group.IsIpv4()) continue;
    const bool is_link_local = own.gid == addresses.At(0)->gid;
    if (!found || !is_link_local) found = i;
    if (!is_link_local) break;
  }
  return found;
}

uint32_t QkeyOf(const CmId& id) { return id.qkey != 0 ? id.qkey : kUdpQkey; }

}  // namespace

absl::Status Manager::ConnectDatagram(CmId& id, std::span<const std::byte> data) {
  DatagramOptions options;
  options.owner = id.number;
  options.account = AccountOf(id);
  options.path = id.path;
  options.service_id = ServiceOf(id);
  options.private_data = data;
  const absl::StatusOr<uint32_t> connection =
      id.port->engine.ConnectDatagram(MonotonicNow(), options);
  if (!connection.ok()) return connection.status();
  id.connection = *connection;
  return absl::OkStatus();
}

absl::Status Manager::Connect(CmId& id, const ConnParam& param, const rdma_ucm_ece& ece) {
  if (param.valid == 0) return Invalid("no parameters");
  if (id.state != IdState::kRouteResolved) return Invalid("no route is resolved");
  const std::vector<std::byte> data = WithHeader(id, DataOf(param));
  id.qpn = param.qp_num;
  id.srq = param.srq != 0;
  absl::Status status;
  if (id.qp_type == kQpUd) {
    status = ConnectDatagram(id, data);
  } else {
    ConnectOptions options;
    options.owner = id.number;
    options.account = AccountOf(id);
    options.path = id.path;
    options.service_id = ServiceOf(id);
    options.transport = TransportOf(id.qp_type);
    options.extended_transport =
        options.transport == static_cast<uint8_t>(TransportService::kExtended) ? kExtendedXrc : 0;
    options.qpn = param.qp_num & roce::kMask24;
    options.psn = id.psn;
    options.path_mtu = static_cast<uint8_t>(id.port->device.max_path_mtu());
    options.responder_resources = param.responder_resources;
    options.initiator_depth = param.initiator_depth;
    options.retry_count = std::min<uint8_t>(param.retry_count, kMaxRetries);
    options.rnr_retry_count = std::min<uint8_t>(param.rnr_retry_count, kMaxRetries);
    options.flow_control = param.flow_control != 0;
    options.srq = param.srq != 0;
    // The program gives the exponent of the QP's timeout: one more than that of the life time.
    options.packet_life_time = id.ack_timeout > 1 ? static_cast<uint8_t>(id.ack_timeout - 1) : 0;
    options.ece = EceOf(ece);
    options.private_data = data;
    const absl::StatusOr<uint32_t> connection = id.port->engine.Connect(MonotonicNow(), options);
    status = connection.status();
    if (connection.ok()) id.connection = *connection;
  }
  if (!status.ok()) return status;
  id.has_asked_peer = true;
  id.state = IdState::kConnect;
  Flush(*id.port);
  return absl::OkStatus();
}

absl::Status Manager::Accept(CmId& id, uint64_t uid, const ConnParam& param,
                             const rdma_ucm_ece& ece) {
  if (id.state != IdState::kConnect) return Invalid("nothing to accept");
  Engine& engine = id.port->engine;
  absl::Status status;
  if (param.valid == 0) {
    status = engine.Ready(MonotonicNow(), id.connection);
  } else if (id.qp_type == kQpUd) {
    id.qpn = param.qp_num;
    id.qkey = param.qkey;
    DatagramAnswer answer;
    answer.qpn = param.qp_num;
    answer.qkey = QkeyOf(id);
    answer.ece = EceOf(ece);
    answer.private_data = DataOf(param);
    status = engine.AnswerDatagram(MonotonicNow(), id.connection, answer);
  } else {
    id.qpn = param.qp_num;
    id.srq = param.srq != 0;
    AcceptOptions options;
    options.qpn = param.qp_num & roce::kMask24;
    options.psn = id.psn;
    options.responder_resources = param.responder_resources;
    options.initiator_depth = param.initiator_depth;
    options.rnr_retry_count = std::min<uint8_t>(param.rnr_retry_count, kMaxRetries);
    options.flow_control = param.flow_control != 0;
    options.srq = param.srq != 0;
    options.ece = EceOf(ece);
    options.private_data = DataOf(param);
    status = engine.Accept(MonotonicNow(), id.connection, options);
  }
  if (status.ok() && param.valid != 0) id.uid = uid;
  // The program considers the connection failed: reject it, so that the peer does too.
  if (!status.ok()) Reject(id, 0, {}).IgnoreError();
  Flush(*id.port);
  return absl::IsFailedPrecondition(status) ? Invalid("the connection is gone") : status;
}

absl::Status Manager::Reject(CmId& id, uint8_t reason, std::span<const std::byte> private_data) {
  if (reason == 0) reason = static_cast<uint8_t>(RejectReason::kConsumer);
  if (reason != static_cast<uint8_t>(RejectReason::kConsumer) &&
      reason != static_cast<uint8_t>(RejectReason::kVendorOption)) {
    return Invalid("reason");
  }
  if (id.connection == 0) return Invalid("nothing to reject");
  Engine& engine = id.port->engine;
  absl::Status status;
  if (id.qp_type == kQpUd) {
    DatagramAnswer answer;
    answer.status = SidrStatus::kRejected;
    answer.private_data = private_data;
    status = engine.AnswerDatagram(MonotonicNow(), id.connection, answer);
  } else {
    status = engine.Reject(MonotonicNow(), id.connection, static_cast<RejectReason>(reason), {},
                           private_data);
  }
  if (status.ok()) id.connection = 0;
  Flush(*id.port);
  return absl::IsFailedPrecondition(status) ? Invalid("nothing to reject") : status;
}

absl::Status Manager::Disconnect(CmId& id) {
  if (!id.has_asked_peer) return Invalid("never connected");
  // As in Linux, succeeds for an identifier that is not connected yet or no longer, or for
  // datagrams: servers may call rdma_disconnect() after the peer has disconnected.
  if (id.connection == 0 || id.qp_type == kQpUd) return absl::OkStatus();
  const absl::Status status = id.port->engine.Disconnect(MonotonicNow(), id.connection);
  Flush(*id.port);
  return absl::IsFailedPrecondition(status) ? absl::OkStatus() : status;
}

absl::Status Manager::Notify(CmId& id, uint32_t event) {
  if (id.connection == 0) return Invalid("not connected");
  if (event != dataplane::kEventCommunicationEstablished) return Invalid("event");
  const absl::Status status = id.port->engine.NoticeEstablished(MonotonicNow(), id.connection);
  Flush(*id.port);
  if (absl::IsAlreadyExists(status)) return StatusFromErrno(EISCONN, "connection");
  return absl::IsFailedPrecondition(status) ? Invalid("state") : status;
}

void Manager::ReceivePacket(Port& port, const roce::Packet& packet) {
  const MadReason reason = CheckGsiPacket(packet);
  const roce::Path reply = ReplyPath(packet);
  if (reason != MadReason::kNone ||
      !port.device.addresses().IsOwn({reply.src_gid, packet.vlan()})) {
    return port.engine.CountReason(reason != MadReason::kNone ? reason : MadReason::kSource);
  }
  port.engine.SetMaxPathMtu(static_cast<uint8_t>(port.device.max_path_mtu()));
  port.engine.HandleMad(MonotonicNow(), reply, packet.payload);
  Flush(port);
}

// The loop ends: an event causes at most one message, and only received messages cause events.
void Manager::Flush(Port& port) {
  while (true) {
    for (const Outgoing& out : port.engine.TakeOutgoing()) {
      port.device.SendGsi(BuildGsiFrame(out.path, out.mad, port.psn++));
    }
    const std::vector<Event> events = port.engine.TakeEvents();
    if (events.empty()) return;
    for (const Event& event : events) HandleEvent(port, event);
  }
}

void Manager::EndConnection(CmId& id, uint32_t event, int32_t status, const Rej* rej) {
  rdma_ucm_event_resp out = {};
  out.event = event;
  out.status = static_cast<uint32_t>(status);
  if (rej != nullptr) CopyData(rej->private_data, out.param.conn);
  id.connection = 0;
  id.state = IdState::kDisconnected;
  Post(id, out);
}

void Manager::HandleEvent(Port& port, const Event& event) {
  if (event.kind == EventKind::kRequest || event.kind == EventKind::kDatagramRequest) {
    return HandleRequest(port, event);
  }
  CmId* id = Get(event.owner);
  if (id == nullptr || id->connection != event.id) return;
  switch (event.kind) {
    case EventKind::kReply: {
      const Rep& rep = std::get<Rep>(event.body);
      rdma_ucm_event_resp out = {};
      out.event = ROCI_ABI_CM_EVENT_CONNECT_RESPONSE;
      CopyData(rep.private_data, out.param.conn);
      out.param.conn.responder_resources = rep.initiator_depth;
      out.param.conn.initiator_depth = rep.responder_resources;
      out.param.conn.flow_control = rep.flow_control;
      out.param.conn.rnr_retry_count = rep.rnr_retry_count;
      out.param.conn.srq = rep.srq;
      out.param.conn.qp_num = rep.local_qpn;
      out.ece = {rep.ece().vendor_id, rep.ece().options};
      return Post(*id, out);
    }
    case EventKind::kEstablished:
      return PostSimple(*id, ROCI_ABI_CM_EVENT_ESTABLISHED);
    case EventKind::kRejected: {
      const Rej& rej = std::get<Rej>(event.body);
      return EndConnection(*id, ROCI_ABI_CM_EVENT_REJECTED, rej.reason, &rej);
    }
    case EventKind::kUnreachable:
    case EventKind::kDatagramUnreachable:
      return EndConnection(*id, ROCI_ABI_CM_EVENT_UNREACHABLE, -ETIMEDOUT, nullptr);
    case EventKind::kDisconnected:
      id->state = IdState::kDisconnected;
      return PostSimple(*id, ROCI_ABI_CM_EVENT_DISCONNECTED);
    case EventKind::kTimewaitOver:
      id->connection = 0;
      return PostSimple(*id, ROCI_ABI_CM_EVENT_TIMEWAIT_EXIT);
    case EventKind::kDatagramReply:
      return HandleDatagramReply(*id, std::get<SidrRep>(event.body));
    case EventKind::kRequest:
    case EventKind::kDatagramRequest:
      return;
  }
}

void Manager::HandleDatagramReply(CmId& id, const SidrRep& rep) {
  id.connection = 0;
  rdma_ucm_event_resp out = {};
  CopyData(rep.private_data, out.param.ud);
  if (rep.status != static_cast<uint8_t>(SidrStatus::kValid)) {
    out.event = ROCI_ABI_CM_EVENT_UNREACHABLE;
    out.status = rep.status;
    return Post(id, out);
  }
  out.event = ROCI_ABI_CM_EVENT_ESTABLISHED;
  out.param.ud.qp_num = rep.qpn;
  out.param.ud.qkey = rep.qkey;
  out.param.ud.ah_attr = AddressHandle(id, id.destination.gid);
  Post(id, out);
}

namespace {

// The peer's initiator is served by this end's responder.
void DescribeRequest(const Req& req, rdma_ucm_event_resp& out) {
  out.param.conn.qp_num = req.local_qpn;
  out.param.conn.srq = req.srq;
  out.param.conn.responder_resources = req.initiator_depth;
  out.param.conn.initiator_depth = req.responder_resources;
  out.param.conn.flow_control = req.flow_control;
  out.param.conn.retry_count = req.retry_count;
  out.param.conn.rnr_retry_count = req.rnr_retry_count;
  out.ece = {req.ece().vendor_id, req.ece().options};
}

}  // namespace

// A request for a connection or, by `datagram`, for a service's queue pair.
struct Manager::Request {
  explicit Request(const Event& request_event)
      : event(request_event),
        req(std::get_if<Req>(&event.body)),
        datagram(std::get_if<SidrReq>(&event.body)),
        service_id(req != nullptr ? req->service_id : datagram->service_id),
        service(IpServiceOf(service_id)),
        data(req != nullptr ? std::span<const std::byte>(req->private_data)
                            : std::span<const std::byte>(datagram->private_data)),
        header(ParseIpHeader(data)) {}

  uint8_t qp_type() const { return req != nullptr ? QpTypeOf(*req) : kQpUd; }
  // Without librdmacm's header.
  std::span<const std::byte> own_data() const {
    return by_service ? data : data.subspan(kIpHeaderBytes);
  }

  const Event& event;
  const Req* req;
  const SidrReq* datagram;
  uint64_t service_id;
  std::optional<IpService> service;
  std::span<const std::byte> data;
  std::optional<IpHeader> header;
  bool by_service = false;  // the listener was found by the service ID, without the header
};

CmId* Manager::FindListenerOf(const Port& port, Request& request) {
  if (!request.service) return nullptr;
  const roce::Path& path = request.event.path;
  if (request.header && request.header->destination == path.src_gid) {
    CmId* listener = FindListener(port, *request.service, *request.header, path.vlan());
    if (listener != nullptr) return listener;
  }
  request.by_service = true;
  return FindServiceListener(port, *request.service, {path.src_gid, path.vlan()});
}

void Manager::HandleRequest(Port& port, const Event& event) {
  Engine& engine = port.engine;
  Request request(event);
  CmId* listener = FindListenerOf(port, request);
  if (listener == nullptr) {
    return engine.Refuse(event.id, RejectReason::kInvalidServiceId, MadReason::kNoListener);
  }
  if (request.qp_type() != listener->qp_type) {
    return engine.Refuse(event.id, RejectReason::kInvalidTransportServiceType,
                         MadReason::kUnexpected);
  }
  if (listener->backlog == 0) return engine.Drop(event.id, MadReason::kBacklog);
  CmId* id = Add(*listener->channel);
  if (id == nullptr) {
    return engine.Refuse(event.id, RejectReason::kNoResources, MadReason::kNoRoom);
  }
  --listener->backlog;
  AdoptRequest(port, request, *listener, *id);

  rdma_ucm_event_resp out = {};
  out.uid = listener->uid;
  out.id = id->number;
  out.event = ROCI_ABI_CM_EVENT_CONNECT_REQUEST;
  if (request.req != nullptr) {
    CopyData(request.own_data(), out.param.conn);
    DescribeRequest(*request.req, out);
  } else {
    CopyData(request.own_data(), out.param.ud);
  }
  listener->channel->Push({listener->number, 0, out});
}

// Makes `id` the identifier of the request.
void Manager::AdoptRequest(Port& port, const Request& request, const CmId& listener, CmId& id) {
  const Event& event = request.event;
  id.listener = listener.number;
  id.space = listener.space;
  id.qp_type = listener.qp_type;
  id.state = IdState::kConnect;
  if (request.by_service) {
    id.source = ServiceAddress(event.path.src_gid, request.service_id);
    id.destination = ServiceAddress(event.path.dst_gid, 0);
  } else {
    id.source = AddressFromGid(request.header->destination, request.service->port);
    id.destination = AddressFromGid(request.header->source, request.header->source_port);
  }
  id.port = &port;
  id.path = request.req != nullptr ? PathBack(event.path, request.req->primary) : event.path;
  id.type_of_service = id.path.traffic_class;
  id.vlan = event.path.vlan();
  id.gid_index = port.device.addresses().IndexOf({event.path.src_gid, id.vlan}).value_or(0);
  id.connection = event.id;
  id.has_asked_peer = true;
  port.engine.Adopt(event.id, id.number, AccountOf(id));
}

absl::StatusOr<uint32_t> Manager::Join(CmId& id, uint64_t uid, const SocketAddress& group,
                                       bool send_only) {
  if (id.qp_type != kQpUd) return Invalid("multicast needs a datagram identifier");
  if (id.port == nullptr ||
      (id.state != IdState::kBound && id.state != IdState::kAddressResolved)) {
    return Invalid("no device is chosen");
  }
  if (!group.gid.IsMulticast()) return Invalid("not a multicast address");
  if (id.memberships.size() >= kMaxMemberships || id.channel->is_full()) {
    return absl::ResourceExhaustedError("too many groups");
  }
  const std::optional<uint32_t> sender = SenderTo(id, group.gid);
  if (!sender) return StatusFromErrno(EADDRNOTAVAIL, "no address of the group's family");
  const roce::NetAddress joined{group.gid, id.vlan};
  Device& device = id.port->device;
  const std::shared_ptr<User>& user = id.channel->shared_user();
  DeviceQuotas& quotas = user->QuotasOf(device.limits(), device.quotas());
  UserShare share(user, quotas.multicast_joins, 1);
  if (!share.ok()) return LimitReached("multicast memberships of identifiers");
  // A send-only member receives nothing, so the group is not joined on the network.
  if (!send_only && !device.JoinGroup(joined)) {
    return absl::ResourceExhaustedError("too many groups");
  }
  do {
    ++last_membership_;
  } while (last_membership_ == 0 || membership_owners_.contains(last_membership_));
  id.memberships.push_back({last_membership_, uid, joined, send_only, 0, std::move(share)});
  membership_owners_[last_membership_] = id.number;
  rdma_ucm_event_resp out = {};
  out.uid = uid;
  out.id = id.number;
  out.event = ROCI_ABI_CM_EVENT_MULTICAST_JOIN;
  out.param.ud.qp_num = roce::kMulticastQpn.value();
  out.param.ud.qkey = QkeyOf(id);
  out.param.ud.ah_attr = AddressHandle(id, group.gid, *sender);
  id.channel->Push({id.number, last_membership_, out});
  return last_membership_;
}

absl::StatusOr<uint32_t> Manager::Leave(const Channel& channel, uint32_t number) {
  const auto it = membership_owners_.find(number);
  if (it == membership_owners_.end()) return absl::NotFoundError("no such membership");
  CmId& id = *Get(it->second);
  if (id.channel != &channel) return Invalid("the membership belongs to another channel");
  const auto member = std::find_if(id.memberships.begin(), id.memberships.end(),
                                   [&](const Membership& m) { return m.number == number; });
  const uint32_t reported = member->events_reported;
  id.channel->RemoveMembershipEvents(number);
  if (!member->send_only) id.port->device.LeaveGroup(member->group);
  id.memberships.erase(member);
  membership_owners_.erase(it);
  return reported;
}

}  // namespace roci::control::cm
