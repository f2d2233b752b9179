#include "control/cm/route_queries.h"

#include <endian.h>

#include <algorithm>
#include <cstring>

#include "control/cm/port.h"
#include "control/cm/verbs_numbers.h"
#include "roce/headers.h"

namespace roci::control::cm {
namespace {

constexpr uint32_t kNoDeviceIndex = ~0u;  // librdmacm then uses the GUID
constexpr uint8_t kSelectExactly = 2;     // of a path record's MTU, rate and packet life time

bool HasRoute(const CmId& id) {
  return id.port != nullptr && id.state >= IdState::kRouteResolved && id.state != IdState::kListen;
}

void DescribeDevice(const CmId& id, rdma_ucm_query_addr_resp& out) {
  out.ibdev_index = kNoDeviceIndex;
  out.pkey = htobe16(roce::kDefaultPkey);
  if (id.port == nullptr) return;
  out.node_guid = htobe64(id.port->device.node_guid());
  out.port_num = kPortNumber;
}

}  // namespace

void QueryRoute(const CmId& id, rdma_ucm_query_route_resp& out) {
  // The answer has no room for AF_IB addresses; programs with AF_IB addresses use QUERY.
  if (id.source.family != AF_IB) StoreSocketAddress(id.source, &out.src_addr);
  if (id.destination.family != AF_IB) StoreSocketAddress(id.destination, &out.dst_addr);
  out.ibdev_index = kNoDeviceIndex;
  if (id.port == nullptr) return;
  out.node_guid = htobe64(id.port->device.node_guid());
  out.port_num = kPortNumber;
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

void QueryAddress(const CmId& id, rdma_ucm_query_addr_resp& out) {
  out.src_size = static_cast<uint16_t>(StoreSocketAddress(id.source, &out.src_addr));
  out.dst_size = static_cast<uint16_t>(StoreSocketAddress(id.destination, &out.dst_addr));
  DescribeDevice(id, out);
}

void QueryGids(const CmId& id, rdma_ucm_query_addr_resp& out) {
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
size_t QueryPath(const CmId& id, std::span<std::byte, kPathAnswerBytes> out) {
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

}  // namespace roci::control::cm
