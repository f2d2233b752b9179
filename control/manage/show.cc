#include "control/manage/show.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "control/cm/show.h"
#include "control/manage/link_requests.h"
#include "control/manage/manage_protocol.h"
#include "control/manage/manage_request.h"
#include "control/manage/show_memory.h"
#include "control/manage/show_objects.h"
#include "dataplane/base/processor_time.h"
#include "dataplane/port/port_offloads.h"
#include "roce/work.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

template <class Names, class Values>
Json ByName(const Names& names, const Values& values, bool with_zeros = true) {
  Json out = Json::object();
  for (size_t i = 0; i < names.size(); ++i) {
    if (with_zeros || values[i] != 0) out[std::string(names[i])] = values[i];
  }
  return out;
}

Json Use(const Quota& quota) { return {{"used", quota.used()}, {"limit", quota.limit()}}; }

// The attributes of the personality's adapter that the device does not reach.
Json Differences(const Personality& personality) {
  Json out = Json::array();
  for (const PersonalityDifference& difference : personality.differences) {
    out.push_back({{"attribute", difference.attribute},
                   {"adapter", difference.adapter},
                   {"device", difference.device}});
  }
  return out;
}

Json ShowDevice(Device& device, const SessionServer& server) {
  device.dataplane().Do(dataplane::RefreshLink{});
  Json gids = Json::array();
  uint32_t index = 0;
  for (const InterfaceAddress& entry : device.addresses().entries()) {
    gids.push_back({{"index", index++},
                    {"gid", GidText(entry.gid)},
                    {"address", absl::StrCat(IpText(entry.gid), "/", entry.prefix_length)},
                    {"vlan", entry.vlan},
                    {"type", "RoCE v2"}});
    if (const auto* conflict = device.neighbours().ConflictOf(entry.net())) {
      gids.back()["claimed_by"] = MacText(conflict->mac);
    }
  }
  Json routes = Json::array();
  for (const Route& route : device.addresses().routes()) {
    routes.push_back({{"network", NetworkText(route.network)},
                      {"gateway", IpText(route.gateway)},
                      {"vlan", route.network.vlan},
                      {"usable", device.addresses().IsUsable(route)}});
  }
  size_t sessions = 0;
  for (const auto& [number, session] : server.sessions()) sessions += session->device() == &device;
  DeviceQuotas& quotas = device.quotas();
  return {{"name", device.name()},
          {"mac", MacText(device.addresses().mac())},
          {"wire", device.config().wire},
          {"port", device.config().port},
          {"mtu", device.dataplane().mtu()},
          {"path_mtu", roce::PathMtuBytes(device.max_path_mtu())},
          {"plugged", device.is_plugged()},
          {"link_up", device.dataplane().link_up()},
          {"rate_mbps", device.rate_mbps()},
          {"congestion_control", device.config().congestion.has_value()},
          {"reorder", NameOf(device.config().reorder)},
          {"personality", device.config().personality.name},
          {"differs_from_adapter", Differences(device.config().personality)},
          {"node_guid", absl::StrFormat("%016x", device.node_guid())},
          {"gids", gids},
          {"routes", routes},
          {"reported_groups", device.reported_groups()},
          {"sessions", sessions},
          {"qps", Use(quotas.qps)},
          {"cqs", Use(quotas.cqs)},
          {"mrs", Use(quotas.mrs)},
          {"pds", Use(quotas.pds)},
          {"ahs", Use(quotas.ahs)},
          {"srqs", Use(quotas.srqs)},
          {"xrcds", Use(quotas.xrcds)}};
}

Json PortCounters(const Device& device, const dataplane::DeviceSnapshot& snapshot) {
  Json out = {{"rx_scattered", device.dataplane().frames_linearized()}};
#define ROCI_SHOW_COUNTER(member, name) out[name] = snapshot.member;
  ROCI_DEVICE_COUNTERS(ROCI_SHOW_COUNTER)
#undef ROCI_SHOW_COUNTER
  return out;
}

Json Drops(const dataplane::DeviceSnapshot& snapshot, bool with_zeros) {
  Json out = ByName(roce::kDropReasonNames, snapshot.drops, with_zeros);
  out.erase(std::string(roce::DropReasonName(roce::DropReason::kNone)));
  return out;
}

Json LostByPort(const dataplane::PortLosses& losses, bool with_zeros) {
  const std::pair<const char*, uint64_t> counts[] = {{"rx_missed", losses.rx_missed},
                                                     {"rx_errors", losses.rx_errors},
                                                     {"rx_no_buffer", losses.rx_no_buffer},
                                                     {"tx_errors", losses.tx_errors}};
  Json out = Json::object();
  for (const auto& [name, count] : counts) {
    if (with_zeros || count != 0) out[name] = count;
  }
  return out;
}

// "rx_pause", "pfc_3", ...
Json FlowControlNames(const dataplane::PortFlowControl& control) {
  Json names = Json::array();
  if (control.rx_pause) names.push_back("rx_pause");
  if (control.tx_pause) names.push_back("tx_pause");
  for (uint32_t priority = 0; priority < kPriorities; ++priority) {
    if ((control.pfc_priorities >> priority & 1) != 0) {
      names.push_back(absl::StrCat("pfc_", priority));
    }
  }
  return names;
}

Json ShowPort(Device& device, bool with_zeros) {
  device.dataplane().Do(dataplane::RefreshLink{});
  const dataplane::DeviceSnapshot snapshot = device.dataplane().Snapshot();
  return {{"device", device.name()},
          {"port", 1},
          {"state", device.dataplane().link_up() ? "active" : "down"},
          {"mac", MacText(device.addresses().mac())},
          {"mtu", device.dataplane().mtu()},
          {"path_mtu", roce::PathMtuBytes(device.max_path_mtu())},
          {"rate_mbps", device.rate_mbps()},
          {"line_rate_mbps", device.dataplane().line_rate_kbps() / 1000},
          {"on", device.config().port.empty() ? absl::StrCat("wire ", device.config().wire)
                                              : device.config().port},
          {"rx_queues", device.dataplane().port_queues().rx},
          {"tx_queues", device.dataplane().port_queues().tx},
          {"rx_ring", device.dataplane().port_rx_ring()},
          {"rx_backlog_mark", device.dataplane().port_backlog_mark()},
          {"flow_control", FlowControlNames(device.dataplane().port_flow_control())},
          {"polled_at_intervals", device.dataplane().port_is_polled()},
          {"offloads", dataplane::NamesOf(device.dataplane().port_offloads())},
          {"counters", PortCounters(device, snapshot)},
          {"lost_by_port", LostByPort(device.dataplane().losses(), with_zeros)},
          {"drops", Drops(snapshot, with_zeros)},
          {"transport", ByName(roce::kQpCounterNames, snapshot.qp, with_zeros)},
          {"slow_path", ByName(kSlowPathReasonNames, device.neighbours().counters(), with_zeros)},
          {"slow_path_send_failures", device.raw_send_failures()},
          {"captures", device.dataplane().captures()},
          {"traced", device.dataplane().traced()},
          {"impairments", DescribeImpairments(device.dataplane())}};
}

// Of the port space in which the user has the most.
const Quota& MostPorts(const PortQuotas& ports) {
  return *std::ranges::max_element(ports, {}, [](const Quota& quota) { return quota.used(); });
}

Json UseOf(uint64_t used, uint64_t limit) { return {{"used", used}, {"limit", limit}}; }

// Totals of the programs of the session's user.
Json ShowUser(const Services& services, const Session& session) {
  const User& user = session.user();
  const dataplane::CopyUse& copies = *user.copy_use;
  return {{"trusted", session.peer().has_rights_of_daemon},
          {"sessions", Use(user.sessions)},
          {"descriptors", Use(user.descriptors)},
          {"queue_bytes", Use(user.ring_memory)},
          {"queue_mappings", Use(user.ring_mappings)},
          {"memory_bytes", Use(user.app_bytes)},
          {"memory_mappings", Use(user.app_mappings)},
          {"retired_bytes", UseOf(user.retired->bytes, User::kMostRetiredBytes)},
          {"retired_mappings", UseOf(user.retired->mappings, User::kMostRetired)},
          {"event_channels", Use(user.event_channels)},
          {"identifiers", Use(user.identifiers)},
          {"connection_events", Use(user.connection_events)},
          {"ports", Use(MostPorts(user.ports))},
          {"helper_threads",
           UseOf(services.blocking_calls.ThreadsOf(user), BlockingCalls::kThreadsOfUser)},
          {"copier_threads", {{"used", copies.threads.load()}}},
          {"waiting_frames", {{"used", copies.frames.load()}}},
          {"control_ms", user.loop_share->used_ns() / 1'000'000}};
}

// The objects of one device that all programs of the session's user have together.
Json ShowObjects(const Session& session) {
  const DeviceQuotas* quotas = session.quotas();
  if (quotas == nullptr) return nullptr;
  return {{"qps", Use(quotas->qps)}, {"cqs", Use(quotas->cqs)},    {"mrs", Use(quotas->mrs)},
          {"pds", Use(quotas->pds)}, {"ahs", Use(quotas->ahs)},    {"srqs", Use(quotas->srqs)},
          {"mws", Use(quotas->mws)}, {"xrcds", Use(quotas->xrcds)}};
}

Json ShowApp(const Services& services, const Session& session) {
  Json out = SessionHead(session);
  out["uid"] = session.peer().uid;
  out["lcore"] = session.device() != nullptr ? Json(session.shard()->lcore_index()) : Json();
  out["pds"] = session.pds().size();
  out["mrs"] = session.mrs().size();
  out["channels"] = session.channels().size();
  out["cqs"] = session.cqs().size();
  out["qps"] = session.qps().size();
  out["srqs"] = session.srqs().size();
  out["xrcds"] = session.xrcds().size();
  out["ahs"] = session.ahs().size();
  uint64_t bytes = 0, mappings = 0;
  for (const auto& [handle, record] : session.mrs()) {
    mappings += record.mappings.first().amount();
    bytes += record.mappings.second().amount();
  }
  out["memory_bytes"] = bytes;
  out["memory_mappings"] = mappings;
  out["memory"] = ShowMemoryOf(session);
  out["user"] = ShowUser(services, session);
  out["objects_of_user"] = ShowObjects(session);
  return out;
}

// Null: the kernel does not measure it.
Json Milliseconds(std::optional<uint64_t> ns) {
  if (!ns) return nullptr;
  return *ns / roce::kNsPerMs;
}

Json ShowLcore(uint32_t lcore, const dataplane::LcoreState& state, dataplane::Fairness fairness) {
  const dataplane::LcoreSnapshot& s = state.counters;
  const auto time = dataplane::ReadProcessorTime(state.thread.id);
  return {{"lcore", lcore},
          {"sessions", state.contexts},
          {"thread", state.thread.id},
          {"realtime_priority", state.thread.realtime_priority},
          {"fairness", fairness == dataplane::Fairness::kUser ? "user" : "queue_pair"},
          {"ran_ms", Milliseconds(time ? std::optional(time->ran_ns) : std::nullopt)},
          {"waited_for_processor_ms",
           Milliseconds(time ? std::optional(time->waited_ns) : std::nullopt)},
          {"loops", s.loops},
          {"busy_loops", s.busy_loops},
          {"busy_cycles", s.busy_cycles},
          {"idle_cycles", s.idle_cycles},
          {"sleeps", s.sleeps},
          {"wakes_by_doorbell", s.wakes_by_doorbell},
          {"wakes_by_port", s.wakes_by_port},
          {"yields", s.yields},
          {"rx_bursts", s.rx_bursts},
          {"rx_handed_off", s.rx_handed_off},
          {"rx_packets", s.rx_packets},
          {"tx_packets", s.tx_packets},
          {"calls", s.calls},
          {"long_calls", s.long_calls},
          {"bad_doorbells", s.bad_doorbells},
          {"comp_events", s.comp_events},
          {"async_events", s.async_events},
          {"events_delayed", s.events_delayed},
          {"events_slow", s.events_slow},
          {"events_lost", s.events_lost},
          {"memory_faults", s.memory_faults},
          {"memory_blocked", s.memory_blocked},
          {"timer_expiries", s.timer_expiries},
          {"durable_syncs", s.durable_syncs},
          {"durable_failures", s.durable_failures},
          {"clock", s.virtual_ns != 0 ? "virtual" : "real"},
          {"virtual_ns", s.virtual_ns},
          {"virtual_jumps", s.virtual_jumps},
          {"virtual_guesses", s.virtual_guesses}};
}

void AddNeighbours(const Device& device, Json& out) {
  for (const auto& [address, entry] : device.neighbours().entries()) {
    out.push_back({{"device", device.name()},
                   {"address", IpText(address.gid)},
                   {"vlan", address.vlan},
                   {"mac", entry.mac ? MacText(*entry.mac) : ""},
                   {"state", entry.mac ? "reachable" : "incomplete"}});
  }
}

void ForEachDevice(const Services& services, const std::function<void(Device&)>& visit) {
  for (const std::unique_ptr<Device>& device : services.devices) visit(*device);
}

Json ShowPorts(const Services& services, const cm::Server& connections, bool with_zeros) {
  Json out = Json::array();
  ForEachDevice(services, [&](Device& d) { out.push_back(ShowPort(d, with_zeros)); });
  cm::AddCounters(connections, with_zeros, out);
  return out;
}

Json ShowItems(const Services& services, const SessionServer& sessions,
               const cm::Server& connections, ShowKind kind) {
  Json out = Json::array();
  switch (kind) {
    case ShowKind::kDevices:
      ForEachDevice(services, [&](Device& d) { out.push_back(ShowDevice(d, sessions)); });
      break;
    case ShowKind::kPorts:
      return ShowPorts(services, connections, false);
    case ShowKind::kCounters:
      return ShowPorts(services, connections, true);
    case ShowKind::kApps:
      for (const auto& [number, session] : sessions.sessions()) {
        out.push_back(ShowApp(services, *session));
      }
      break;
    case ShowKind::kQps:
    case ShowKind::kCqs:
    case ShowKind::kSrqs:
    case ShowKind::kMrs:
      break;  // ShowInParts
    case ShowKind::kConnections:
      return cm::ShowConnections(connections);
    case ShowKind::kLcores:
      for (uint32_t i = 0; i < services.dataplane.lcore_count(); ++i) {
        out.push_back(ShowLcore(i, services.dataplane.Inspect(i), services.config.daemon.fairness));
      }
      break;
    case ShowKind::kNeighbours:
      ForEachDevice(services, [&](Device& d) { AddNeighbours(d, out); });
      break;
  }
  return out;
}

}  // namespace

absl::StatusOr<nlohmann::json> Show(const Services& services, const SessionServer& sessions,
                                    const cm::Server& connections, const nlohmann::json& request) {
  const absl::StatusOr<std::string> what = RequestText(request, "what");
  if (!what.ok()) return what.status();
  const std::optional<ShowKind> kind = FindShowKind(*what);
  if (!kind)
    return absl::InvalidArgumentError(absl::StrCat("cannot show \"", *what, "\": unknown"));
  return ShowItems(services, sessions, connections, *kind);
}

std::optional<ManageServer::Parts> ShowInParts(const SessionServer& sessions,
                                               const nlohmann::json& request) {
  const absl::StatusOr<std::string> what = RequestText(request, "what");
  const std::optional<ShowKind> kind = what.ok() ? FindShowKind(*what) : std::nullopt;
  switch (kind.value_or(ShowKind::kDevices)) {
    case ShowKind::kQps:
    case ShowKind::kCqs:
    case ShowKind::kSrqs:
    case ShowKind::kMrs:
      return [objects = std::make_shared<ShownObjects>(sessions, *kind)](std::string& out) {
        return objects->AddSome(out);
      };
    default:
      return std::nullopt;
  }
}

}  // namespace roci::control
