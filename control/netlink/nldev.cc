#include "control/netlink/nldev.h"

#include <net/if.h>
#include <rdma/rdma_netlink.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "control/config/device_limits.h"
#include "control/config/port_arguments.h"
#include "control/sysfs/hardware_counters.h"
#include "verbs_provider/abi/stand_in.h"

namespace roci::control::netlink {
namespace {

constexpr uint32_t kPort = 1;
// RDMA_USER_CM_ABI_VERSION, and IB_USER_VERBS_ABI_VERSION's part for providers.
constexpr uint64_t kCmAbi = 4;
constexpr uint64_t kVerbsAbi = 1;

bool ExistsIn(const SessionServer& sessions, const ObjectKey& key) {
  const auto it = sessions.sessions().find(key.session);
  if (it == sessions.sessions().end()) return false;
  const Session& session = *it->second;
  switch (key.kind) {
    case ObjectKind::kPd:
      return session.pds().Find(key.handle) != nullptr;
    case ObjectKind::kCq:
      return session.cqs().Find(key.handle) != nullptr;
    case ObjectKind::kMr:
      return session.mrs().Find(key.handle) != nullptr;
    case ObjectKind::kSrq:
      return session.srqs().Find(key.handle) != nullptr;
  }
  return false;
}

// A device number as the kernel's huge_encode_dev() writes it.
constexpr uint64_t EncodeDeviceNumber(uint64_t major, uint64_t minor) {
  return (minor & 0xff) | (major << 8) | ((minor & ~uint64_t{0xff}) << 12);
}

}  // namespace

Nldev::Nldev(const Sources& sources)
    : sources_(sources), numbers_([&sessions = sources.sessions](const ObjectKey& key) {
        return ExistsIn(sessions, key);
      }) {}

const Device* Nldev::DeviceOf(const Request& request) const {
  const auto& devices = sources_.services.devices;
  if (!request.device || *request.device >= devices.size()) return nullptr;
  const Device& device = *devices[*request.device];
  return device.is_plugged() ? &device : nullptr;
}

const Session* Nldev::Visible(const Viewer& viewer, const Device& device, uint32_t session) const {
  const auto it = sources_.sessions.sessions().find(session);
  if (it == sources_.sessions.sessions().end()) return nullptr;
  const Session& found = *it->second;
  return found.device() == &device && viewer.Sees(&found.user()) ? &found : nullptr;
}

int Nldev::Answer(const Viewer& viewer, const Request& request, std::vector<Datagram>& out) {
  switch (request.command) {
    case RDMA_NLDEV_CMD_SYS_GET:
      return AnswerSystem(viewer, request, out.emplace_back());
    case RDMA_NLDEV_CMD_GET_CHARDEV:
      return AnswerCharacterDevice(viewer, request, out.emplace_back());
    case RDMA_NLDEV_CMD_GET:
    case RDMA_NLDEV_CMD_PORT_GET:
    case RDMA_NLDEV_CMD_RES_GET:
    case RDMA_NLDEV_CMD_RES_QP_GET:
    case RDMA_NLDEV_CMD_RES_CM_ID_GET:
    case RDMA_NLDEV_CMD_RES_CQ_GET:
    case RDMA_NLDEV_CMD_RES_MR_GET:
    case RDMA_NLDEV_CMD_RES_PD_GET:
    case RDMA_NLDEV_CMD_RES_CTX_GET:
    case RDMA_NLDEV_CMD_RES_SRQ_GET:
    case RDMA_NLDEV_CMD_STAT_GET:
    case RDMA_NLDEV_CMD_STAT_GET_STATUS:
      return DeviceOf(request) != nullptr ? AnswerDevice(viewer, request, out) : EINVAL;
    case RDMA_NLDEV_CMD_STAT_SET:
      if (!viewer.is_trusted) return EPERM;
      return DeviceOf(request) != nullptr ? AnswerDevice(viewer, request, out) : EINVAL;
    // The daemon's configuration has what these would change.
    case RDMA_NLDEV_CMD_SET:
    case RDMA_NLDEV_CMD_NEWLINK:
    case RDMA_NLDEV_CMD_DELLINK:
    case RDMA_NLDEV_CMD_SYS_SET:
    case RDMA_NLDEV_CMD_STAT_DEL:
      return viewer.is_trusted ? EOPNOTSUPP : EPERM;
    default:
      return EINVAL;
  }
}

int Nldev::AnswerDevice(const Viewer& viewer, const Request& request, std::vector<Datagram>& out) {
  const bool has_port = request.port == kPort;
  switch (request.command) {
    case RDMA_NLDEV_CMD_STAT_GET:
      if (request.stat_resource == RDMA_NLDEV_ATTR_RES_QP) {
        return has_port ? AnswerMode(viewer, request, out.emplace_back()) : EINVAL;
      }
      if (request.stat_resource) return EOPNOTSUPP;
      return has_port ? AnswerCounters(viewer, request, out, /*names_only=*/false) : EINVAL;
    case RDMA_NLDEV_CMD_STAT_GET_STATUS:
      return has_port ? AnswerCounters(viewer, request, out, /*names_only=*/true) : EINVAL;
    case RDMA_NLDEV_CMD_STAT_SET:
      return has_port ? SetMode(viewer, request, out.emplace_back()) : EINVAL;
    case RDMA_NLDEV_CMD_GET:
    case RDMA_NLDEV_CMD_PORT_GET:
    case RDMA_NLDEV_CMD_RES_GET:
      break;
    default:
      return AnswerObject(viewer, request, out.emplace_back());
  }
  if (request.command == RDMA_NLDEV_CMD_PORT_GET && !has_port) return EINVAL;
  Datagram& message = out.emplace_back();
  const auto begin = message.Begin(request.head, TypeOf(request.command), 0, viewer.port);
  PutWhole(message, viewer, request.command, *request.device);
  message.End(begin);
  return 0;
}

void Nldev::PutWhole(Datagram& out, const Viewer& viewer, uint16_t command, uint32_t index) const {
  const Device& device = *sources_.services.devices[index];
  PutDevice(out, index);
  if (command == RDMA_NLDEV_CMD_GET) PutProperties(out, device);
  if (command == RDMA_NLDEV_CMD_PORT_GET) PutPort(out, device);
  if (command == RDMA_NLDEV_CMD_RES_GET) PutSummary(out, viewer, device);
}

int Nldev::AnswerSystem(const Viewer& viewer, const Request& request, Datagram& out) const {
  const auto begin = out.Begin(request.head, TypeOf(request.command), 0, viewer.port);
  // Devices belong to no network namespace. RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK is left out:
  // libibverbs keeps what ibv_fork_init() asks for.
  constexpr uint8_t kShared = 1;
  out.PutU8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE, kShared);
  out.End(begin);
  return 0;
}

int Nldev::AnswerCharacterDevice(const Viewer& viewer, const Request& request,
                                 Datagram& out) const {
  if (!request.chardev) return EINVAL;
  std::string name;
  uint64_t abi = kCmAbi;
  if (*request.chardev == "uverbs") {
    const Device* const device = DeviceOf(request);
    if (device == nullptr) return EINVAL;
    const std::optional<int> number = sources_.publisher.UverbsNumber(*device);
    if (!number) return ENODEV;
    name = absl::StrCat("uverbs", *number);
    abi = kVerbsAbi;
  } else if (*request.chardev == "rdma_cm") {
    name = "rdma_cm";
  } else {
    return ENODEV;
  }
  const auto begin = out.Begin(request.head, TypeOf(request.command), 0, viewer.port);
  out.PutU64(RDMA_NLDEV_ATTR_CHARDEV, EncodeDeviceNumber(abi::kStandInMajor, abi::kStandInMinor));
  out.PutU64(RDMA_NLDEV_ATTR_CHARDEV_ABI, abi);
  out.PutText(RDMA_NLDEV_ATTR_CHARDEV_NAME, name);
  out.End(begin);
  return 0;
}

void Nldev::PutDevice(Datagram& out, uint32_t index) const {
  const Device& device = *sources_.services.devices[index];
  out.PutU32(RDMA_NLDEV_ATTR_DEV_INDEX, index);
  out.PutText(RDMA_NLDEV_ATTR_DEV_NAME, device.name());
}

void Nldev::PutProperties(Datagram& out, const Device& device) const {
  roci_abi_query_device_response properties = {};
  DescribeDevice(device.limits(), device.identity(), device.node_guid(), properties);
  constexpr uint8_t kChannelAdapter = 1;
  constexpr uint8_t kNoAdaptiveModeration = 0;
  out.PutU32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);  // the number of ports
  out.PutU64(RDMA_NLDEV_ATTR_CAP_FLAGS, properties.device_cap_flags);
  out.PutText(RDMA_NLDEV_ATTR_FW_VERSION, device.identity().firmware_version);
  out.PutU64(RDMA_NLDEV_ATTR_NODE_GUID, device.node_guid());
  out.PutU64(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, device.node_guid());
  out.PutU8(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, kChannelAdapter);
  out.PutU8(RDMA_NLDEV_ATTR_DEV_DIM, kNoAdaptiveModeration);
  out.PutText(RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce");
}

void Nldev::PutPort(Datagram& out, const Device& device) const {
  const SysfsTree::Port port = SysfsPublisher::PortOf(device);
  // IBTA vol 1, 14.2.5.6, PortPhysicalState.
  const uint8_t physical = port.state == SysfsPortState::kActive ? 5 : port.enabled ? 2 : 3;
  out.PutU32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  out.PutU8(RDMA_NLDEV_ATTR_PORT_STATE, static_cast<uint8_t>(port.state));
  out.PutU8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, physical);
  const std::string interface = NetworkDeviceOf(device.config().port);
  const unsigned number = interface.empty() ? 0 : if_nametoindex(interface.c_str());
  if (number == 0) return;
  out.PutU32(RDMA_NLDEV_ATTR_NDEV_INDEX, number);
  out.PutText(RDMA_NLDEV_ATTR_NDEV_NAME, interface);
}

void Nldev::PutSummary(Datagram& out, const Viewer& viewer, const Device& device) const {
  struct Entry {
    const char* name;
    uint64_t count = 0;
  };
  enum { kPd, kCq, kQp, kCmId, kMr, kCtx, kSrq };
  Entry entries[] = {{"pd"}, {"cq"}, {"qp"}, {"cm_id"}, {"mr"}, {"ctx"}, {"srq"}};
  for (const auto& [number, session] : sources_.sessions.sessions()) {
    if (session->device() != &device || !viewer.Sees(&session->user())) continue;
    entries[kPd].count += session->pds().size();
    entries[kCq].count += session->cqs().size();
    entries[kQp].count += session->qps().size();
    entries[kMr].count += session->mrs().size();
    entries[kSrq].count += session->srqs().size();
    ++entries[kCtx].count;
  }
  for (const auto& [number, id] : sources_.connections.manager().ids().all()) {
    entries[kCmId].count += IsShownOn(*id, device) && viewer.Sees(id->channel->user());
  }
  const auto table = out.Open(RDMA_NLDEV_ATTR_RES_SUMMARY);
  for (const Entry& entry : entries) {
    const auto line = out.Open(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);
    out.PutText(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, entry.name);
    out.PutU64(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, entry.count);
    out.Close(line);
  }
  out.Close(table);
}

// ---- One object by its number

int Nldev::AnswerObject(const Viewer& viewer, const Request& request, Datagram& out) {
  const auto begin = out.Begin(request.head, TypeOf(request.command), 0, viewer.port);
  PutDevice(out, *request.device);
  const int error = PutObject({out, viewer, numbers_}, request, *DeviceOf(request));
  out.End(begin);
  return error;
}

int Nldev::PutQueuePair(const Scope& scope, const Request& request, const Device& device) const {
  if (!request.qpn) return EINVAL;
  for (const auto& [number, session] : sources_.sessions.sessions()) {
    if (Visible(scope.viewer, device, number) == nullptr) continue;
    for (const auto& [handle, record] : session->qps()) {
      if (record.qpn.value() != *request.qpn || !IsQueuePair(record)) continue;
      dataplane::QueuePair* const qp[] = {record.qp};
      PutQp(scope, *session, record, session->shard()->Do(dataplane::InspectQueuePairs{qp})[0]);
      return 0;
    }
  }
  return ENOENT;
}

int Nldev::PutObject(const Scope& scope, const Request& request, const Device& device) {
  const auto put = [&](const std::optional<uint32_t>& number, ObjectKind kind, const auto& table,
                       const auto& put_one) {
    if (!number) return EINVAL;
    const std::optional<ObjectKey> key = numbers_.Find(kind, *number);
    if (!key) return ENOENT;
    const Session* const session = Visible(scope.viewer, device, key->session);
    if (session == nullptr) return ENOENT;
    const auto* const record = (session->*table)().Find(key->handle);
    if (record == nullptr) return ENOENT;
    put_one(scope, *session, key->handle, *record);
    return 0;
  };
  switch (request.command) {
    case RDMA_NLDEV_CMD_RES_QP_GET:
      return PutQueuePair(scope, request, device);
    case RDMA_NLDEV_CMD_RES_CQ_GET:
      return put(request.cqn, ObjectKind::kCq, &Session::cqs, PutCq);
    case RDMA_NLDEV_CMD_RES_MR_GET:
      return put(request.mrn, ObjectKind::kMr, &Session::mrs, PutMr);
    case RDMA_NLDEV_CMD_RES_PD_GET:
      return put(request.pdn, ObjectKind::kPd, &Session::pds, PutPd);
    case RDMA_NLDEV_CMD_RES_SRQ_GET:
      return put(request.srqn, ObjectKind::kSrq, &Session::srqs, PutSrq);
    case RDMA_NLDEV_CMD_RES_CTX_GET: {
      if (!request.context) return EINVAL;
      const Session* const session = Visible(scope.viewer, device, *request.context);
      if (session == nullptr) return ENOENT;
      PutContext(scope, *session);
      return 0;
    }
    default: {
      if (!request.cm_id) return EINVAL;
      const auto& ids = sources_.connections.manager().ids().all();
      const auto it = ids.find(*request.cm_id);
      if (it == ids.end() || !IsShownOn(*it->second, device) ||
          !scope.viewer.Sees(it->second->channel->user())) {
        return ENOENT;
      }
      PutCmId(scope, *it->second);
      return 0;
    }
  }
}

// ---- Counters

// As many messages as the counters need.
int Nldev::AnswerCounters(const Viewer& viewer, const Request& request, std::vector<Datagram>& out,
                          bool names_only) const {
  const std::vector<CounterValue> values =
      HardwareCounters(DeviceOf(request)->dataplane().Snapshot());
  for (size_t next = 0; next < values.size();) {
    Datagram& message = out.emplace_back();
    const auto begin = message.Begin(request.head, TypeOf(request.command), 0, viewer.port);
    PutDevice(message, *request.device);
    message.PutU32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
    const auto table = message.Open(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS);
    for (; next < values.size(); ++next) {
      const auto line = message.Open(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY);
      message.PutText(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, values[next].name);
      if (names_only) {
        message.PutU32(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_INDEX, static_cast<uint32_t>(next));
      } else {
        message.PutU64(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, values[next].value);
      }
      message.Close(line);
      if (!message.ok()) {
        message.Return(line);
        break;
      }
    }
    message.Close(table);
    message.End(begin);
  }
  return 0;
}

int Nldev::AnswerMode(const Viewer& viewer, const Request& request, Datagram& out) const {
  if (!request.stat_mode) return EOPNOTSUPP;  // one counter, by its number
  const auto it = counter_masks_.find(DeviceOf(request));
  const uint32_t mask = it != counter_masks_.end() ? it->second : 0;
  const auto begin = out.Begin(request.head, TypeOf(request.command), 0, viewer.port);
  PutDevice(out, *request.device);
  out.PutU32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  out.PutU32(RDMA_NLDEV_ATTR_STAT_MODE,
             mask != 0 ? RDMA_COUNTER_MODE_AUTO : RDMA_COUNTER_MODE_NONE);
  if (mask != 0) out.PutU32(RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK, mask);
  out.End(begin);
  return 0;
}

int Nldev::SetMode(const Viewer& viewer, const Request& request, Datagram& out) {
  constexpr uint32_t kKnown = RDMA_COUNTER_MASK_QP_TYPE | RDMA_COUNTER_MASK_PID;
  if (!request.stat_mode || request.stat_resource != RDMA_NLDEV_ATTR_RES_QP) return EINVAL;
  if (*request.stat_mode != RDMA_COUNTER_MODE_AUTO) return EOPNOTSUPP;
  const uint32_t mask = request.stat_mask.value_or(0);
  if ((mask & ~kKnown) != 0) return EOPNOTSUPP;
  counter_masks_[DeviceOf(request)] = mask;
  const auto begin = out.Begin(request.head, TypeOf(request.command), 0, viewer.port);
  PutDevice(out, *request.device);
  out.PutU32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  out.End(begin);
  return 0;
}

}  // namespace roci::control::netlink
