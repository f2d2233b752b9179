#include "control/netlink/objects.h"

#include <rdma/rdma_netlink.h>

#include <array>

#include "control/cm/channel.h"
#include "control/cm/manager.h"
#include "dataplane/shard/shard_client.h"

namespace roci::control::netlink {
namespace {

constexpr uint32_t kPort = 1;
// Most queue pairs that a shared receive queue lists, so that it fits into a datagram.
constexpr size_t kMostListedQps = 100;

// Values of RDMA_NLDEV_ATTR_RES_STATE of an identifier: the kernel's enum rdma_cm_state.
uint8_t StateOf(const cm::CmId& id) {
  switch (id.state) {
    case cm::IdState::kIdle:
      return 0;
    case cm::IdState::kAddressQuery:
      return 1;
    case cm::IdState::kAddressResolved:
      return 2;
    case cm::IdState::kRouteResolved:
      return 4;
    case cm::IdState::kConnect:
      return 5;
    case cm::IdState::kDisconnected:
      return 6;
    case cm::IdState::kBound:
      return 7;
    case cm::IdState::kListen:
      return 8;
  }
  return 0;
}

// Values of RDMA_NLDEV_ATTR_RES_TYPE of a shared receive queue: enum ibv_srq_type.
uint8_t TypeOf(const SrqRecord& record) {
  if (record.xrcd != 0) return 1;
  return record.has_tags ? 2 : 0;
}

void PutContextNumber(const Scope& scope, const Session& session) {
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_CTXN, session.number());
}

// Nothing for an object of another session that shares the context.
template <class Table>
void PutReference(const Scope& scope, const Session& session, uint16_t type, ObjectKind kind,
                  const Table& table, uint32_t handle) {
  if (table.Find(handle) == nullptr) return;
  scope.out.PutU32(type, scope.numbers.Of({kind, session.number(), handle}));
}

void PutOwner(const Scope& scope, const Session& session) {
  PutOwner(scope, session.peer().pid, session.program());
}

void PutAddress(const Scope& scope, uint16_t type, const cm::SocketAddress& address) {
  std::array<std::byte, sizeof(sockaddr_storage)> bytes{};
  if (cm::StoreSocketAddress(address, bytes.data()) != 0) scope.out.PutBytes(type, bytes);
}

}  // namespace

void PutOwner(const Scope& scope, pid_t pid, std::string_view program) {
  if (scope.viewer.sees_pids && pid > 0) {
    scope.out.PutU32(RDMA_NLDEV_ATTR_RES_PID, static_cast<uint32_t>(pid));
  } else {
    scope.out.PutText(RDMA_NLDEV_ATTR_RES_KERN_NAME, program);
  }
}

void PutPd(const Scope& scope, const Session& session, uint32_t handle, const PdRecord& record) {
  scope.out.PutU64(RDMA_NLDEV_ATTR_RES_USECNT, record.ref_count.total());
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_PDN,
                   scope.numbers.Of({ObjectKind::kPd, session.number(), handle}));
  PutContextNumber(scope, session);
  PutOwner(scope, session);
}

void PutCq(const Scope& scope, const Session& session, uint32_t handle, const CqRecord& record) {
  const auto info = session.shard()->Do(dataplane::InspectCompletionQueue{*record.cq});
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_CQE, info.capacity);
  scope.out.PutU64(RDMA_NLDEV_ATTR_RES_USECNT, info.ref_count);
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_CQN,
                   scope.numbers.Of({ObjectKind::kCq, session.number(), handle}));
  PutContextNumber(scope, session);
  PutOwner(scope, session);
}

void PutMrNumber(const Scope& scope, const Session& session, uint32_t handle, const MrRecord&) {
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_MRN,
                   scope.numbers.Of({ObjectKind::kMr, session.number(), handle}));
}

void PutMr(const Scope& scope, const Session& session, uint32_t handle, const MrRecord& record) {
  // Who sees the region may know its key: it is the user's own, or the viewer may do everything.
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_RKEY, record.key);
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_LKEY, record.key);
  scope.out.PutU64(RDMA_NLDEV_ATTR_RES_MRLEN, record.length);
  PutMrNumber(scope, session, handle, record);
  PutReference(scope, session, RDMA_NLDEV_ATTR_RES_PDN, ObjectKind::kPd, session.pds(), record.pd);
  PutOwner(scope, session);
}

void PutSrq(const Scope& scope, const Session& session, uint32_t handle, const SrqRecord& record) {
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_SRQN,
                   scope.numbers.Of({ObjectKind::kSrq, session.number(), handle}));
  scope.out.PutU8(RDMA_NLDEV_ATTR_RES_TYPE, TypeOf(record));
  PutReference(scope, session, RDMA_NLDEV_ATTR_RES_PDN, ObjectKind::kPd, session.pds(), record.pd);
  PutReference(scope, session, RDMA_NLDEV_ATTR_RES_CQN, ObjectKind::kCq, session.cqs(), record.cq);
  const Datagram::Mark list = scope.out.Open(RDMA_NLDEV_ATTR_RES_QP);
  size_t listed = 0;
  for (const auto& [number, qp] : session.qps()) {
    if (qp.srq != handle || !IsQueuePair(qp)) continue;
    if (++listed > kMostListedQps) break;
    const Datagram::Mark entry = scope.out.Open(RDMA_NLDEV_ATTR_RES_QP_ENTRY);
    scope.out.PutU32(RDMA_NLDEV_ATTR_RES_LQPN, qp.qpn.value());
    scope.out.Close(entry);
  }
  scope.out.Close(list);
  PutOwner(scope, session);
}

uint32_t PortOf(const dataplane::QueuePairInfo& info) {
  return info.state != roce::QpState::kReset ? kPort : 0;
}

void PutQp(const Scope& scope, const Session& session, const QpRecord& record,
           const dataplane::QueuePairInfo& info) {
  const bool has_peer = info.type == roce::QpType::kRc || info.type == roce::QpType::kUc;
  const bool can_migrate =
      has_peer || info.type == roce::QpType::kXrcSend || info.type == roce::QpType::kXrcRecv;
  if (PortOf(info) != 0) scope.out.PutU32(RDMA_NLDEV_ATTR_PORT_INDEX, PortOf(info));
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_LQPN, info.qpn.value());
  if (has_peer) {
    scope.out.PutU32(RDMA_NLDEV_ATTR_RES_RQPN, info.attributes.dest_qpn.value());
    scope.out.PutU32(RDMA_NLDEV_ATTR_RES_RQ_PSN, info.attributes.rq_psn.value());
  }
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_SQ_PSN, info.attributes.sq_psn.value());
  constexpr uint8_t kMigrated = 0;  // IBV_MIG_MIGRATED
  if (can_migrate) scope.out.PutU8(RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, kMigrated);
  scope.out.PutU8(RDMA_NLDEV_ATTR_RES_TYPE, static_cast<uint8_t>(info.type));
  scope.out.PutU8(RDMA_NLDEV_ATTR_RES_STATE, static_cast<uint8_t>(info.state));
  PutReference(scope, session, RDMA_NLDEV_ATTR_RES_PDN, ObjectKind::kPd, session.pds(), record.pd);
  PutOwner(scope, session);
}

void PutContext(const Scope& scope, const Session& session) {
  PutContextNumber(scope, session);
  PutOwner(scope, session);
}

uint32_t PortOf(const cm::CmId& id) { return id.port != nullptr ? kPort : 0; }

bool IsShownOn(const cm::CmId& id, const Device& device) {
  return id.port != nullptr ? &id.port->device == &device : id.state == cm::IdState::kListen;
}

void PutCmId(const Scope& scope, const cm::CmId& id) {
  if (PortOf(id) != 0) scope.out.PutU32(RDMA_NLDEV_ATTR_PORT_INDEX, PortOf(id));
  if (id.qpn != 0) {
    scope.out.PutU32(RDMA_NLDEV_ATTR_RES_LQPN, id.qpn);
    scope.out.PutU8(RDMA_NLDEV_ATTR_RES_TYPE, id.qp_type);
  }
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_PS, static_cast<uint32_t>(id.space));
  scope.out.PutU8(RDMA_NLDEV_ATTR_RES_STATE, StateOf(id));
  PutAddress(scope, RDMA_NLDEV_ATTR_RES_SRC_ADDR, id.source);
  PutAddress(scope, RDMA_NLDEV_ATTR_RES_DST_ADDR, id.destination);
  scope.out.PutU32(RDMA_NLDEV_ATTR_RES_CM_IDN, id.number);
  PutOwner(scope, id.channel->peer().pid, "rdma_cm");
}

}  // namespace roci::control::netlink
