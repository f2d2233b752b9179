// The manager's requests: finds the listener of each, and makes the request an event there.

#include <optional>
#include <span>

#include "control/cm/event_fields.h"
#include "control/cm/manager.h"
#include "control/cm/verbs_numbers.h"
#include "control/loop/errno_status.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::control::cm {
namespace {

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

// A request for a connection or, by `datagram`, for a service's queue pair.
struct Request {
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

// Null: none; notes in `request` how the listener was found.
CmId* FindListenerOf(const Bindings& bindings, const Port& port, Request& request) {
  if (!request.service) return nullptr;
  const roce::Path& path = request.event.path;
  if (request.header && request.header->destination == path.src_gid) {
    CmId* listener = bindings.FindListener(port, *request.service, *request.header, path.vlan());
    if (listener != nullptr) return listener;
  }
  request.by_service = true;
  return bindings.FindServiceListener(port, *request.service, {path.src_gid, path.vlan()});
}

// Makes `id` the identifier of the request.
void AdoptRequest(Port& port, const Request& request, const CmId& listener, CmId& id) {
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
  port.engine.Adopt(event.id, id.number, id.account());
}

}  // namespace

void Manager::HandleRequest(Port& port, const Event& event) {
  Engine& engine = port.engine;
  Request request(event);
  CmId* listener = FindListenerOf(bindings_, port, request);
  if (listener == nullptr) {
    return engine.Refuse(event.id, RejectReason::kInvalidServiceId, MadReason::kNoListener);
  }
  if (request.qp_type() != listener->qp_type) {
    return engine.Refuse(event.id, RejectReason::kInvalidTransportServiceType,
                         MadReason::kUnexpected);
  }
  if (listener->backlog == 0) return engine.Drop(event.id, MadReason::kBacklog);
  CmId* id = ids_.Add(*listener->channel);
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
    DescribePeer(*request.req, out);
    out.param.conn.retry_count = request.req->retry_count;
  } else {
    CopyData(request.own_data(), out.param.ud);
  }
  listener->channel->Push({listener->number, 0, out});
}

}  // namespace roci::control::cm
