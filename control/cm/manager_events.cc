// Datagrams of QP 1 to the engine, and events of the engine to programs.

#include <cerrno>

#include "control/cm/event_fields.h"
#include "control/cm/gsi.h"
#include "control/cm/manager.h"
#include "control/cm/queue_pair_attributes.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::control::cm {
namespace {

void EndConnection(CmId& id, uint32_t event, int32_t status, const Rej* rej) {
  rdma_ucm_event_resp out = {};
  out.event = event;
  out.status = static_cast<uint32_t>(status);
  if (rej != nullptr) CopyData(rej->private_data, out.param.conn);
  id.connection = 0;
  id.state = IdState::kDisconnected;
  id.Post(out);
}

void HandleDatagramReply(CmId& id, const SidrRep& rep) {
  id.connection = 0;
  rdma_ucm_event_resp out = {};
  CopyData(rep.private_data, out.param.ud);
  if (rep.status != static_cast<uint8_t>(SidrStatus::kValid)) {
    out.event = ROCI_ABI_CM_EVENT_UNREACHABLE;
    out.status = rep.status;
    return id.Post(out);
  }
  out.event = ROCI_ABI_CM_EVENT_ESTABLISHED;
  out.param.ud.qp_num = rep.qpn;
  out.param.ud.qkey = rep.qkey;
  out.param.ud.ah_attr = AddressHandle(id, id.destination.gid);
  id.Post(out);
}

}  // namespace

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

void Manager::HandleEvent(Port& port, const Event& event) {
  if (event.kind == EventKind::kRequest || event.kind == EventKind::kDatagramRequest) {
    return HandleRequest(port, event);
  }
  CmId* id = ids_.Get(event.owner);
  if (id == nullptr || id->connection != event.id) return;
  switch (event.kind) {
    case EventKind::kReply: {
      const Rep& rep = std::get<Rep>(event.body);
      rdma_ucm_event_resp out = {};
      out.event = ROCI_ABI_CM_EVENT_CONNECT_RESPONSE;
      CopyData(rep.private_data, out.param.conn);
      DescribePeer(rep, out);
      return id->Post(out);
    }
    case EventKind::kEstablished:
      return id->Post(ROCI_ABI_CM_EVENT_ESTABLISHED);
    case EventKind::kRejected: {
      const Rej& rej = std::get<Rej>(event.body);
      return EndConnection(*id, ROCI_ABI_CM_EVENT_REJECTED, rej.reason, &rej);
    }
    case EventKind::kUnreachable:
    case EventKind::kDatagramUnreachable:
      return EndConnection(*id, ROCI_ABI_CM_EVENT_UNREACHABLE, -ETIMEDOUT, nullptr);
    case EventKind::kDisconnected:
      id->state = IdState::kDisconnected;
      return id->Post(ROCI_ABI_CM_EVENT_DISCONNECTED);
    case EventKind::kTimewaitOver:
      id->connection = 0;
      return id->Post(ROCI_ABI_CM_EVENT_TIMEWAIT_EXIT);
    case EventKind::kDatagramReply:
      return HandleDatagramReply(*id, std::get<SidrRep>(event.body));
    case EventKind::kRequest:
    case EventKind::kDatagramRequest:
      return;
  }
}

}  // namespace roci::control::cm
