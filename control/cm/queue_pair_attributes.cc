#include "control/cm/queue_pair_attributes.h"

#include <cstring>

#include "control/cm/port.h"
#include "control/cm/verbs_numbers.h"
#include "memory/types.h"
#include "roce/headers.h"

namespace roci::control::cm {
namespace {

using memory::Access;

absl::Status NotNow() {
  return absl::InvalidArgumentError("not possible in this state of the connection");
}

// Whether the queue pair has a reliable requester or responder: an XRC queue pair has one of them
// (IBTA vol 1, A14), a UC queue pair has none.
bool IsReliableRequester(const CmId& id) { return id.qp_type == kQpRc || id.qp_type == kQpXrcSend; }
bool IsReliableResponder(const CmId& id) { return id.qp_type == kQpRc || id.qp_type == kQpXrcRecv; }

// INIT of a queue pair without a connection, or for datagrams.
void InitAttributesOf(const CmId& id, ib_uverbs_qp_attr& out) {
  out.qp_attr_mask = roce::kAttrState | roce::kAttrPkeyIndex | roce::kAttrPort;
  if (id.qp_type == kQpUd) {
    out.qkey = id.used_qkey();
    out.qp_attr_mask |= roce::kAttrQkey;
  } else {
    out.qp_attr_mask |= roce::kAttrAccessFlags;
  }
}

void InitAttributesOf(const Connection& c, ib_uverbs_qp_attr& out) {
  out.qp_attr_mask =
      roce::kAttrState | roce::kAttrAccessFlags | roce::kAttrPkeyIndex | roce::kAttrPort;
  out.qp_access_flags = static_cast<uint32_t>(Access::kRemoteWrite);
  if (c.responder_resources != 0) {
    out.qp_access_flags |= static_cast<uint32_t>(Access::kRemoteRead | Access::kRemoteAtomic);
  }
}

void RtrAttributesOf(const CmId& id, const Connection& c, const ib_uverbs_ah_attr& path,
                     ib_uverbs_qp_attr& out) {
  out.qp_attr_mask = roce::kAttrState | roce::kAttrAddressVector | roce::kAttrPathMtu |
                     roce::kAttrDestQpn | roce::kAttrRqPsn;
  out.ah_attr = path;
  out.path_mtu = c.path_mtu;
  out.dest_qp_num = c.remote_qpn;
  out.rq_psn = id.psn;
  if (IsReliableResponder(id)) {
    out.qp_attr_mask |= roce::kAttrMaxDestRdAtomic | roce::kAttrMinRnrTimer;
    out.max_dest_rd_atomic = c.responder_resources;
  }
}

void RtsAttributesOf(const CmId& id, const Connection& c, ib_uverbs_qp_attr& out) {
  out.qp_attr_mask = roce::kAttrState | roce::kAttrSqPsn;
  out.sq_psn = c.remote_psn;
  if (IsReliableRequester(id) || IsReliableResponder(id)) {
    out.qp_attr_mask |= roce::kAttrTimeout;
    out.timeout = id.ack_timeout != 0 ? id.ack_timeout : c.ack_timeout;
  }
  if (IsReliableRequester(id)) {
    out.qp_attr_mask |= roce::kAttrRetryCount | roce::kAttrRnrRetry | roce::kAttrMaxRdAtomic;
    out.retry_cnt = c.retry_count;
    out.rnr_retry = c.rnr_retry_count;
    out.max_rd_atomic = c.initiator_depth;
  }
}

}  // namespace

ib_uverbs_ah_attr AddressHandle(const CmId& id, const roce::Gid& destination) {
  // Addresses may have changed: look the index up again.
  const AddressTable& addresses = id.port->device.addresses();
  return AddressHandle(id, destination,
                       addresses.IndexOf({id.source.gid, id.vlan}).value_or(id.gid_index));
}

ib_uverbs_ah_attr AddressHandle(const CmId& id, const roce::Gid& destination, uint32_t source) {
  const AddressTable& addresses = id.port->device.addresses();
  ib_uverbs_ah_attr out = {};
  std::memcpy(out.grh.dgid, destination.bytes.data(), sizeof(out.grh.dgid));
  out.grh.sgid_index = static_cast<uint8_t>(source);
  out.grh.flow_label = id.path.flow_label;
  out.grh.hop_limit = roce::kDefaultHopLimit;
  out.grh.traffic_class = id.type_of_service;
  out.sl = id.path.has_vlan ? ServiceLevelOf(id.path)
                            : addresses.PriorityIn(id.vlan, id.type_of_service);
  out.is_global = 1;
  out.port_num = kPortNumber;
  return out;
}

absl::Status InitQpAttr(const CmId& id, uint32_t state, ib_uverbs_qp_attr& out) {
  if (id.port == nullptr) return NotNow();
  out.qp_state = state;
  out.port_num = kPortNumber;
  const Connection* connection = id.connection != 0 ? id.port->engine.Find(id.connection) : nullptr;
  if (id.qp_type == kQpUd || connection == nullptr) {
    if (state != kQpInit) return NotNow();
    InitAttributesOf(id, out);
    return absl::OkStatus();
  }
  if (connection->state >= State::kDreqSent) return NotNow();
  const bool knows_peer = connection->remote_qpn != 0 || connection->remote_id != 0;
  switch (state) {
    case kQpInit:
      InitAttributesOf(*connection, out);
      return absl::OkStatus();
    case kQpRtr:
      if (!knows_peer) return NotNow();
      RtrAttributesOf(id, *connection, AddressHandle(id, connection->path.dst_gid), out);
      return absl::OkStatus();
    case kQpRts:
      if (!knows_peer) return NotNow();
      RtsAttributesOf(id, *connection, out);
      return absl::OkStatus();
    default:
      return NotNow();
  }
}

}  // namespace roci::control::cm
