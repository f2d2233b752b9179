// The manager's queries: an identifier's route, addresses and queue pair attributes.
#include <endian.h>
#include <rdma/ib_user_sa.h>

#include <algorithm>
#include <cstring>

#include "control/cm/manager.h"
#include "control/cm/verbs_numbers.h"
#include "memory/types.h"
#include "roce/headers.h"

namespace roci::control::cm {
namespace {

using memory::Access;

constexpr uint32_t kNoDeviceIndex = ~0u;  // librdmacm then uses the GUID
constexpr uint8_t kPort = 1;
constexpr uint8_t kSelectExactly = 2;  // of a path record's MTU, rate and packet life time

absl::Status NotNow() {
  return absl::InvalidArgumentError("not possible in this state of the connection");
}

// Whether the queue pair has a reliable requester or responder: an XRC queue pair has one of them
// (IBTA vol 1, A14), a UC queue pair has none.
bool IsReliableRequester(const CmId& id) { return id.qp_type == kQpRc || id.qp_type == kQpXrcSend; }
bool IsReliableResponder(const CmId& id) { return id.qp_type == kQpRc || id.qp_type == kQpXrcRecv; }

bool HasRoute(const CmId& id) {
  return id.port != nullptr && id.state >= IdState::kRouteResolved && id.state != IdState::kListen;
}

}  // namespace

ib_uverbs_ah_attr Manager::AddressHandle(const CmId& id, const roce::Gid& destination) const {
  // Addresses may have changed: look the index up again.
  const AddressTable& addresses = id.port->device.addresses();
  return AddressHandle(id, destination,
                       addresses.IndexOf({id.source.gid, id.vlan}).value_or(id.gid_index));
}

ib_uverbs_ah_attr Manager::AddressHandle(const CmId& id, const roce::Gid& destination,
                                         uint32_t source) const {
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
  out.port_num = kPort;
  return out;
}

void Manager::QueryRoute(const CmId& id, rdma_ucm_query_route_resp& out) const {
  // The answer has no room for AF_IB addresses; programs with AF_IB addresses use QUERY.
  if (id.source.family != AF_IB) StoreSocketAddress(id.source, &out.src_addr);
  if (id.destination.family != AF_IB) StoreSocketAddress(id.destination, &out.dst_addr);
  out.ibdev_index = kNoDeviceIndex;
  if (id.port == nullptr) return;
  out.node_guid = htobe64(id.port->device.node_guid());
  out.port_num = kPort;
  ib_user_path_rec& path = out.ib_route[0];
  if (!id.source.IsAny()) {
    std::memcpy(path.sgid, id.source.gid.bytes.data(), sizeof(path.sgid));
  }
  path.pkey = htobe16(roce::kDefaultPkey);
  if (id.destination.family == AF_UNSPEC) return;
  std::memcpy(path.dgid, id.destination.gid.bytes.data(), sizeof(path.dgid));
  if (!HasRoute(id)) return;
  out.num_paths = 1;
  path.reversible = 1;
  path.numb_path = 1;
  path.mtu = static_cast<uint32_t>(id.port->device.max_path_mtu());
  path.flow_label = htobe32(id.path.flow_label);
  path.hop_limit = roce::kDefaultHopLimit;
  path.traffic_class = id.type_of_service;
  path.sl = ServiceLevelOf(id.path);
  path.mtu_selector = kSelectExactly;
  path.rate_selector = kSelectExactly;
  path.rate = kRate100Gbps;
  path.packet_life_time_selector = kSelectExactly;
  path.packet_life_time = EngineConfig().packet_life_time;
}

void Manager::QueryAddress(const CmId& id, rdma_ucm_query_addr_resp& out) const {
  out.src_size = static_cast<uint16_t>(StoreSocketAddress(id.source, &out.src_addr));
  out.dst_size = static_cast<uint16_t>(StoreSocketAddress(id.destination, &out.dst_addr));
  DescribeDevice(id, out);
}

void Manager::QueryGids(const CmId& id, rdma_ucm_query_addr_resp& out) const {
  const auto as_service = [&id](const SocketAddress& address) {
    if (address.family == AF_IB) return address;
    const bool has_gid = address.family != AF_UNSPEC && !address.IsAny();
    SocketAddress result =
        ServiceAddress(has_gid ? address.gid : roce::Gid{}, ServiceIdOf({id.space, address.port}));
    result.service_mask = 0;
    return result;
  };
  out.src_size = static_cast<uint16_t>(StoreSocketAddress(as_service(id.source), &out.src_addr));
  out.dst_size =
      static_cast<uint16_t>(StoreSocketAddress(as_service(id.destination), &out.dst_addr));
  DescribeDevice(id, out);
}

// A path record of subnet administration (IBTA vol 1, 15.2.5.16), without service ID and LIDs.
size_t Manager::QueryPath(const CmId& id, std::span<std::byte, kPathAnswerBytes> out) const {
  std::fill(out.begin(), out.end(), std::byte{0});
  rdma_ucm_query_path_resp head = {};
  head.num_paths = HasRoute(id) ? 1 : 0;
  std::memcpy(out.data(), &head, sizeof(head));
  if (head.num_paths == 0) return sizeof(head);
  const uint32_t flags = IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_BIDIRECTIONAL;
  std::byte* data = out.data() + sizeof(head);
  std::memcpy(data, &flags, sizeof(flags));
  std::byte* record = data + offsetof(ib_path_rec_data, path_rec);
  constexpr size_t kDgid = 8, kSgid = 24, kFlowLabel = 44, kTrafficClass = 48, kReversible = 49,
                   kPkey = 50, kServiceLevel = 52, kMtu = 54, kRate = 55, kLifeTime = 56;
  constexpr std::byte kExactly{kSelectExactly << 6};
  std::memcpy(record + kDgid, id.destination.gid.bytes.data(), sizeof(id.destination.gid.bytes));
  std::memcpy(record + kSgid, id.source.gid.bytes.data(), sizeof(id.source.gid.bytes));
  roce::StoreBe<uint32_t>(record + kFlowLabel, id.path.flow_label << 8 | roce::kDefaultHopLimit);
  record[kTrafficClass] = std::byte{id.type_of_service};
  record[kReversible] = std::byte{1 << 7 | 1};  // reversible, one
  roce::StoreBe<uint16_t>(record + kPkey, roce::kDefaultPkey);
  roce::StoreBe<uint16_t>(record + kServiceLevel, ServiceLevelOf(id.path));
  record[kMtu] = kExactly | static_cast<std::byte>(id.port->device.max_path_mtu());
  record[kRate] = kExactly | std::byte{kRate100Gbps};
  record[kLifeTime] = kExactly | std::byte{EngineConfig().packet_life_time};
  return kPathAnswerBytes;
}

void Manager::DescribeDevice(const CmId& id, rdma_ucm_query_addr_resp& out) const {
  out.ibdev_index = kNoDeviceIndex;
  out.pkey = htobe16(roce::kDefaultPkey);
  if (id.port == nullptr) return;
  out.node_guid = htobe64(id.port->device.node_guid());
  out.port_num = kPort;
}

namespace {

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

absl::Status Manager::InitQpAttr(const CmId& id, uint32_t state, ib_uverbs_qp_attr& out) const {
  if (id.port == nullptr) return NotNow();
  out.qp_state = state;
  out.port_num = kPort;
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
