#include "control/manage/metrics_snapshot.h"

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "control/cm/show.h"
#include "control/config/device_limits.h"
#include "control/manage/manage_protocol.h"
#include "control/manage/show.h"
#include "control/session/session_commands.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostPrograms = 256;

// The items of `roci show`: metrics and `roci show` have the same names and numbers.
Json ItemsOf(const Services& services, const SessionServer& sessions, const cm::Server& connections,
             ShowKind kind) {
  const absl::StatusOr<Json> items =
      Show(services, sessions, connections, {{"what", std::string(NameOf(kind))}});
  return items.ok() ? *items : Json::array();
}

// {"used": n, "limit": n} of several members become {"used": {member: n}, "limit": {member: n}}.
Json WithObjects(Json device) {
  Json used = Json::object(), limit = Json::object();
  for (const auto& [name, value] : device.items()) {
    if (!value.is_object() || !value.contains("limit")) continue;
    used[name] = value["used"];
    limit[name] = value["limit"];
  }
  Json out;
  for (const char* name : {"name", "mac", "wire", "port", "link_up", "rate_mbps", "mtu", "path_mtu",
                           "congestion_control", "reported_groups", "sessions"}) {
    out[name] = device[name];
  }
  out["used"] = std::move(used);
  out["limit"] = std::move(limit);
  return out;
}

Json WithMessages(Json port) {
  constexpr char kDisplaced[] = "connections_displaced";
  Json messages = std::move(port["connection_manager"]);
  if (messages.is_object()) {
    port["cm_connections_displaced"] = messages.value(kDisplaced, 0);
    messages.erase(kDisplaced);
    port["cm_messages"] = std::move(messages);
  }
  port.erase("connection_manager");
  return port;
}

template <class Change>
Json Each(Json items, Change change) {
  for (Json& item : items) item = change(std::move(item));
  return items;
}

Json Objects(const Session& session) {
  return {{"pds", session.pds().size()},   {"mrs", session.mrs().size()},
          {"mws", session.mws().size()},   {"channels", session.channels().size()},
          {"cqs", session.cqs().size()},   {"qps", session.qps().size()},
          {"srqs", session.srqs().size()}, {"xrcds", session.xrcds().size()},
          {"ahs", session.ahs().size()},   {"flows", session.flows().size()}};
}

// By name and user: process numbers would make new series forever.
Json Programs(const SessionServer& sessions) {
  std::map<std::pair<std::string, std::string>, Json> programs;
  for (const auto& [number, session] : sessions.sessions()) {
    std::pair key(session->program(), std::to_string(session->peer().uid));
    if (programs.size() >= kMostPrograms && !programs.contains(key)) key = {"(others)", ""};
    Json& program = programs[key];
    if (program.is_null()) {
      program = {{"program", key.first},
                 {"uid", key.second},
                 {"sessions", 0},
                 {"objects", Json::object()}};
    }
    program["sessions"] = program["sessions"].get<uint64_t>() + 1;
    Json& objects = program["objects"];
    const Json own = Objects(*session);
    for (const auto& [type, count] : own.items()) {
      objects[type] = objects.value(type, uint64_t{0}) + count.get<uint64_t>();
    }
  }
  Json out = Json::array();
  for (auto& [key, program] : programs) out.push_back(std::move(program));
  return out;
}

// Users with sessions; there are at most as many as sessions.
Json UsersOf(const SessionServer& sessions) {
  std::map<const User*, Json> users;
  for (const auto& [number, session] : sessions.sessions()) {
    const User& user = session->user();
    if (users.contains(&user) || users.size() >= kMostPrograms) continue;
    Json used, limit;
    const auto add = [&](const char* name, const Quota& quota) {
      used[name] = quota.used();
      limit[name] = quota.limit();
    };
    add("sessions", user.sessions);
    add("descriptors", user.descriptors);
    add("queue_bytes", user.ring_memory);
    add("queue_mappings", user.ring_mappings);
    add("memory_bytes", user.app_bytes);
    add("memory_mappings", user.app_mappings);
    add("event_channels", user.event_channels);
    add("identifiers", user.identifiers);
    add("connection_events", user.connection_events);
    users[&user] = {{"uid", std::to_string(session->peer().uid)},
                    {"used", std::move(used)},
                    {"limit", std::move(limit)},
                    {"control_ns", user.loop_share->used_ns()}};
  }
  Json out = Json::array();
  for (auto& [key, user] : users) out.push_back(std::move(user));
  return out;
}

// The commands that were called.
Json Calls(const CallTimes& times) {
  struct Command {
    uint32_t number;
    const char* name;
  };
  constexpr auto kCommands = std::to_array<Command>({
#define ROCI_ROW(name, request, response, takes_fds, check, offered, handler) \
  {ROCI_ABI_##name, #name},
      ROCI_SESSION_COMMANDS(ROCI_ROW)
#undef ROCI_ROW
  });
  Json out = Json::array();
  for (const Command& command : kCommands) {
    const CallTimes::Histogram& histogram = times.histograms()[command.number];
    if (histogram.buckets == decltype(histogram.buckets){}) continue;
    std::string name = command.name;
    for (char& each : name) each = each == '_' ? '_' : static_cast<char>(each | 0x20);
    out.push_back({{"call", name},
                   {"buckets", histogram.buckets},
                   {"sum_ns", histogram.sum_ns},
                   {"refused", histogram.refused}});
  }
  return out;
}

}  // namespace

Json SnapshotMetrics(const Services& services, const SessionServer& sessions,
                     const cm::Server& connections, double start_time_s) {
  const auto items = [&](ShowKind kind) { return ItemsOf(services, sessions, connections, kind); };
  return {{"daemon",
           {{{"version", kFirmwareVersion},
             {"start_time", start_time_s},
             {"refused", sessions.refused()}}}},
          {"devices", Each(items(ShowKind::kDevices), &WithObjects)},
          {"ports", Each(items(ShowKind::kCounters), &WithMessages)},
          {"lcores", items(ShowKind::kLcores)},
          {"programs", Programs(sessions)},
          {"users", UsersOf(sessions)},
          {"cm", {{{"identifiers", cm::CountStates(connections)}}}},
          {"calls", Calls(services.call_times)}};
}

}  // namespace roci::control
