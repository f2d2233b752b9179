#include "tools/show/tables.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/show/printable.h"

namespace roci::tools {
namespace {

using Json = nlohmann::json;

struct Column {
  const char* title;
  std::function<std::string(const Json&)> text;
};

std::string Text(const Json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) {
    const std::string text = value.get<std::string>();
    return text.empty() ? "-" : Printable(text);
  }
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  return value.dump();
}

// The value at a path of keys ("requester/window").
const Json& At(const Json& item, std::string_view path) {
  static const Json nothing;
  const Json::json_pointer pointer(std::string("/").append(path));
  return item.contains(pointer) ? item.at(pointer) : nothing;
}

std::string Field(const Json& item, const std::string& path) { return Text(At(item, path)); }

Column Plain(const char* title, const std::string& path) {
  return {title, [path](const Json& item) { return Field(item, path); }};
}

Column Join(const char* title, const std::string& first, const char* between,
            const std::string& second) {
  return {title, [=](const Json& item) {
            return absl::StrCat(Field(item, first), between, Field(item, second));
          }};
}

Column App() {
  return {"APP", [](const Json& item) {
            return absl::StrCat(Field(item, "program"), "[", Field(item, "pid"), "]");
          }};
}

std::string Bytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"", "K", "M", "G", "T", "P"};
  size_t unit = 0;
  while (bytes >= 10 * 1024 && bytes % 1024 == 0 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrCat(bytes, kUnits[unit]);
}

std::string ListText(const Json& list) {
  std::string out;
  for (const Json& entry : list) absl::StrAppend(&out, out.empty() ? "" : ",", Text(entry));
  return out.empty() ? "-" : out;
}

std::string Addresses(const Json& item) {
  std::string out;
  for (const Json& gid : At(item, "gids")) {
    absl::StrAppend(&out, out.empty() ? "" : " ", Field(gid, "address"));
    if (const uint32_t vlan = gid.value("vlan", 0u); vlan != 0) absl::StrAppend(&out, "@", vlan);
    absl::StrAppend(&out, gid.contains("claimed_by") ? " (CONFLICT)" : "");
  }
  return out;
}

std::vector<Column> DeviceColumns() {
  return {Plain("DEVICE", "name"),
          {"ON",
           [](const Json& item) {
             const std::string port = Field(item, "port");
             return port != "-" ? port : "wire " + Field(item, "wire");
           }},
          {"LINK",
           [](const Json& item) {
             if (At(item, "plugged") == false) return "unplugged";
             return At(item, "link_up") == true ? "up" : "down";
           }},
          Plain("MAC", "mac"),
          Join("MTU/PATH", "mtu", "/", "path_mtu"),
          Plain("REORDER", "reorder"),
          Plain("SESSIONS", "sessions"),
          Join("QPS", "qps/used", "/", "qps/limit"),
          Join("CQS", "cqs/used", "/", "cqs/limit"),
          Join("MRS", "mrs/used", "/", "mrs/limit"),
          {"ADDRESSES (by GID index)", Addresses}};
}

std::vector<Column> AppColumns() {
  return {Plain("SESSION", "session"),   App(),
          Plain("UID", "uid"),           Plain("DEVICE", "device"),
          Plain("LCORE", "lcore"),       Plain("PDS", "pds"),
          Plain("MRS", "mrs"),           Plain("CQS", "cqs"),
          Plain("QPS", "qps"),           Plain("AHS", "ahs"),
          Plain("CHANNELS", "channels"), Plain("MEMORY", "memory/reached_by")};
}

std::vector<Column> QpColumns() {
  return {
      {"QPN", [](const Json& item) { return absl::StrFormat("0x%06x", item.value("qpn", 0u)); }},
      Plain("TYPE", "type"),
      Plain("STATE", "state"),
      Plain("DEVICE", "device"),
      App(),
      {"REMOTE",
       [](const Json& item) {
         const uint32_t qpn = item.value("remote_qpn", 0u);
         if (qpn == 0) return std::string("-");
         return absl::StrFormat("%s 0x%06x", Field(item, "remote"), qpn);
       }},
      Plain("MTU", "path_mtu"),
      Join("SQ PSN (oldest..new)", "requester/oldest_unacknowledged", "..", "requester/next_new"),
      Plain("RQ PSN", "responder/expected_psn"),
      Join("WINDOW", "requester/window", "/", "requester/window_limit"),
      {"TIMER",
       [](const Json& item) {
         return absl::StrCat(Field(item, "timeout"),
                             At(item, "requester/timer_running") == true ? "*" : "");
       }},
      Join("RETRY", "requester/retries_left", "/", "retry_count"),
      Join("RNR", "requester/rnr_retries_left", "/", "rnr_retry"),
      {"LOSS",
       [](const Json& item) {
         return item.value("selective_repeat", false) ? "selective" : "go-back-N";
       }},
      {"THROTTLED",
       [](const Json& item) {
         const Json& kbps = At(item, "throttled_to_kbps");
         if (!kbps.is_number()) return std::string("-");
         return absl::StrFormat("%.1f Mb/s", kbps.get<double>() / 1000);
       }},
      Plain("TX PKTS", "tx_packets"),
      Plain("RX PKTS", "rx_packets"),
      Plain("DROPS", "drops")};
}

std::vector<Column> CqColumns() {
  return {
      Plain("CQ", "handle"),          Plain("DEVICE", "device"),        App(),
      Plain("CAPACITY", "capacity"),  Plain("QUEUES", "qp_queues"),     Plain("CHANNEL", "channel"),
      Plain("EVENTS", "comp_events"), Plain("OVERFLOWED", "overflowed")};
}

std::vector<Column> SrqColumns() {
  return {Plain("SRQ", "handle"),   Plain("DEVICE", "device"), App(),
          Plain("TYPE", "type"),    Plain("NUMBER", "number"), Plain("PD", "pd"),
          Plain("SIZE", "max_wr"),  Plain("POSTED", "posted"), Plain("TAKEN", "taken"),
          Plain("QPS", "qps"),      Plain("LIMIT", "limit"),   Plain("EVENTS", "async_events"),
          Plain("BROKEN", "broken")};
}

std::vector<Column> MrColumns() {
  return {Plain("MR", "handle"),
          Plain("KIND", "kind"),
          Plain("KEY", "key"),
          Plain("DEVICE", "device"),
          App(),
          Plain("PD", "pd"),
          Plain("ADDRESS", "address"),
          {"LENGTH", [](const Json& item) { return Bytes(item.value("length", uint64_t{0})); }},
          Plain("REACHED BY", "reached_by"),
          Plain("EXTENTS", "extents"),
          {"ACCESS", [](const Json& item) { return ListText(At(item, "access")); }},
          Plain("WHY NOT MAPPED", "why_not_mapped")};
}

std::vector<Column> LcoreColumns() {
  return {Plain("LCORE", "lcore"),
          Plain("SESSIONS", "sessions"),
          {"BUSY",
           [](const Json& item) {
             const double busy = item.value("busy_cycles", 0.0);
             const double all = busy + item.value("idle_cycles", 0.0);
             // No cycles: it was asleep.
             return all == 0 ? "0%" : absl::StrFormat("%.0f%%", 100 * busy / all);
           }},
          {"PRIORITY",
           [](const Json& item) {
             const int priority = item.value("realtime_priority", 0);
             return priority == 0 ? "ordinary" : absl::StrCat("realtime ", priority);
           }},
          Plain("SHARED BY", "fairness"),
          {"WAITED",
           [](const Json& item) {
             const auto waited = item.find("waited_for_processor_ms");
             if (waited == item.end() || !waited->is_number()) return std::string("-");
             return absl::StrFormat("%.1f s", waited->get<double>() / 1000);
           }},
          Plain("SLEEPS", "sleeps"),
          Plain("PORT WAKES", "wakes_by_port"),
          Plain("RX PKTS", "rx_packets"),
          Plain("TX PKTS", "tx_packets"),
          Plain("COMP EVENTS", "comp_events"),
          Plain("MEMORY FAULTS", "memory_faults"),
          Plain("TIMERS", "timer_expiries"),
          {"CLOCK", [](const Json& item) {
             const uint64_t ns = item.value("virtual_ns", uint64_t{0});
             return ns == 0 ? std::string("real")
                            : absl::StrFormat("virtual %u.%09u s, %u guesses", ns / 1'000'000'000,
                                              ns % 1'000'000'000,
                                              item.value("virtual_guesses", uint64_t{0}));
           }}};
}

std::vector<Column> ConnectionColumns() {
  return {Plain("ID", "id"),
          Plain("PID", "pid"),
          Plain("SPACE", "space"),
          Plain("STATE", "state"),
          Plain("DEVICE", "device"),
          Plain("SOURCE", "source"),
          Plain("DESTINATION", "destination"),
          Plain("QPN", "qpn"),
          Plain("REMOTE QPN", "remote_qpn")};
}

std::string VlanText(const Json& item) {
  const uint32_t vlan = item.value("vlan", 0u);
  return vlan == 0 ? "-" : absl::StrCat(vlan);
}

std::vector<Column> AddressColumns() {
  return {Plain("DEVICE", "device"),
          Plain("GID", "index"),
          Plain("ADDRESS", "address"),
          {"VLAN", VlanText},
          Plain("CLAIMED BY", "claimed_by")};
}

std::vector<Column> RouteColumns() {
  return {Plain("DEVICE", "device"),
          Plain("NETWORK", "network"),
          Plain("VIA", "gateway"),
          {"VLAN", VlanText},
          {"STATE", [](const Json& item) { return At(item, "usable") == true ? "up" : "dead"; }}};
}

std::vector<Column> NeighbourColumns() {
  return {Plain("DEVICE", "device"), Plain("ADDRESS", "address"), Plain("MAC", "mac"),
          Plain("STATE", "state")};
}

std::string FormatTable(const std::vector<Column>& columns, const Json& items) {
  std::vector<std::vector<std::string>> rows(1);
  for (const Column& column : columns) rows[0].push_back(column.title);
  for (const Json& item : items) {
    std::vector<std::string>& row = rows.emplace_back();
    for (const Column& column : columns) row.push_back(column.text(item));
  }
  std::vector<size_t> widths(columns.size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      absl::StrAppend(&out, row[i], last ? "\n" : std::string(widths[i] - row[i].size() + 2, ' '));
    }
  }
  return out;
}

void AppendNumbers(const Json& numbers, bool with_zeros, std::string& out) {
  for (const auto& [name, value] : numbers.items()) {
    if (with_zeros || value != 0) absl::StrAppendFormat(&out, "    %-34s %s\n", name, Text(value));
  }
}

constexpr size_t kMostWordBytes = 200;

// An impairment or a fault, one word each: "loss=0.01".
std::string RuleWords(const Json& rule) {
  std::string out = Field(rule, "direction");
  for (const auto& [name, value] : rule.items()) {
    if (name == "direction" || name == "counters" || name == "fault") continue;
    std::string text = value.is_array() ? ListText(value) : Text(value);
    if (text.size() > kMostWordBytes) text = text.substr(0, kMostWordBytes) + "...";  // a frame
    absl::StrAppend(&out, " ", name, "=", text);
  }
  return out;
}

// A line with the counts of a rule that are not 0, and of matches.
std::string CounterWords(const Json& rule, const std::string& indent) {
  std::string out = indent;
  for (const auto& [name, value] : At(rule, "counters").items()) {
    if (name == "matched" || value != 0) absl::StrAppend(&out, name, " ", Text(value), "  ");
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

// A line below the table for each reason why memory is not mapped. `path`: of the JSON object that
// has the reason.
std::string MemoryNotes(const Json& items, const std::string& path) {
  std::map<std::string, std::string> faster;  // by reason
  for (const Json& item : items) {
    const std::string reason = Field(item, path + "why_not_mapped");
    if (reason != "-") faster.emplace(reason, Field(item, path + "faster_with"));
  }
  std::string out;
  for (const auto& [reason, with] : faster) {
    absl::StrAppend(&out, "not mapped: ", reason, ". Faster: ", with, "\n");
  }
  return out;
}

// A line for each user of programs, and for each device of it: what the programs have together, of
// what they may have.
std::string UserNotes(const Json& items) {
  const auto amounts = [](const Json& quotas) {
    std::string out;
    for (const auto& item : quotas.items()) {
      const Json& quota = item.value();
      if (!quota.is_object()) continue;
      const bool is_bytes = item.key().ends_with("_bytes");
      const auto text = [&](const char* key) {
        const uint64_t value = quota.value(key, uint64_t{0});
        return is_bytes ? Bytes(value) : absl::StrCat(value);
      };
      absl::StrAppend(&out, out.empty() ? "" : ", ", item.key(), " ", text("used"));
      if (quota.contains("limit")) absl::StrAppend(&out, "/", text("limit"));
    }
    return out;
  };
  std::map<std::string, std::string> lines;
  for (const Json& item : items) {
    if (!At(item, "user").is_object()) continue;
    const std::string trusted = At(item, "user/trusted") == true ? " (trusted)" : "";
    const std::string user = absl::StrCat("user ", Field(item, "uid"), trusted);
    lines[user] =
        absl::StrCat(amounts(At(item, "user")), ", control_ms ", Field(item, "user/control_ms"));
    const Json& objects = At(item, "objects_of_user");
    if (objects.is_object()) lines[user + " on " + Field(item, "device")] = amounts(objects);
  }
  std::string out;
  for (const auto& [title, text] : lines) absl::StrAppend(&out, title, ": ", text, "\n");
  return out;
}

std::string NotesBelow(const std::string& what, const Json& items) {
  if (what == "mrs") return MemoryNotes(items, "");
  return what == "apps" ? MemoryNotes(items, "memory/") + UserNotes(items) : "";
}

// A block per port: counters and drop reasons.
std::string FormatPorts(const Json& items, bool with_zeros) {
  std::string out;
  for (const Json& item : items) {
    absl::StrAppendFormat(&out, "%s port %s: %s on %s, MAC %s, MTU %s\n", Field(item, "device"),
                          Field(item, "port"), Field(item, "state"), Field(item, "on"),
                          Field(item, "mac"), Field(item, "mtu"));
    const Json& offloads = At(item, "offloads");
    if (!offloads.empty()) absl::StrAppend(&out, "  offloads: ", ListText(offloads), "\n");
    const Json& flow_control = At(item, "flow_control");
    if (!flow_control.empty()) {
      absl::StrAppend(&out, "  flow control: ", ListText(flow_control), "\n");
    }
    if (At(item, "polled_at_intervals") == true) out += "  polled at intervals while idle\n";
    for (const auto& [title, key] :
         {std::pair("counters", "counters"), std::pair("lost by the port itself", "lost_by_port"),
          std::pair("frames dropped, by reason", "drops"), std::pair("transport", "transport"),
          std::pair("messages to the connection manager", "connection_manager"),
          std::pair("not RoCE (ARP, ND, ping)", "slow_path")}) {
      std::string lines;
      AppendNumbers(At(item, key), with_zeros, lines);
      if (!lines.empty()) absl::StrAppend(&out, "  ", title, ":\n", lines);
    }
    const Json& impairments = At(item, "impairments");
    if (!impairments.empty()) {
      absl::StrAppend(&out, "  impairments:\n", FormatImpairments(impairments, "    "));
    }
  }
  return out;
}

}  // namespace

Json OfDevice(Json items, const std::string& device) {
  Json out = Json::array();
  for (Json& item : items) {
    const auto owner = item.find(item.contains("device") ? "device" : "name");
    if (owner != item.end() && *owner == device) out.push_back(std::move(item));
  }
  return out;
}

Json LcoresSince(const Json& earlier, Json later) {
  for (Json& item : later) {
    for (const Json& before : earlier) {
      if (At(before, "lcore") != At(item, "lcore")) continue;
      for (const char* key : {"busy_cycles", "idle_cycles"}) {
        item[key] = item.value(key, uint64_t{0}) - before.value(key, uint64_t{0});
      }
    }
  }
  return later;
}

std::string FormatFaults(const Json& faults) {
  std::string out;
  for (const Json& fault : faults) {
    absl::StrAppend(&out, Field(fault, "fault"), ": ", RuleWords(fault), "\n",
                    CounterWords(fault, "  "));
  }
  return out.empty() ? "none\n" : out;
}

std::string FormatImpairments(const Json& impairments, const std::string& indent) {
  std::string out;
  for (const Json& impairment : impairments) {
    absl::StrAppend(&out, indent, RuleWords(impairment), "\n",
                    CounterWords(impairment, indent + "  "));
  }
  return out.empty() ? indent + "none\n" : out;
}

std::string FormatItems(const std::string& what, const Json& items) {
  if (what == "ports" || what == "counters") return FormatPorts(items, what == "counters");
  static const std::map<std::string, std::vector<Column>> tables = {
      {"devices", DeviceColumns()},
      {"apps", AppColumns()},
      {"qps", QpColumns()},
      {"cqs", CqColumns()},
      {"srqs", SrqColumns()},
      {"mrs", MrColumns()},
      {"lcores", LcoreColumns()},
      {"neighbours", NeighbourColumns()},
      {"addresses", AddressColumns()},
      {"routes", RouteColumns()},
      {"connections", ConnectionColumns()}};
  const auto it = tables.find(what);
  if (it == tables.end()) return items.dump(2) + "\n";
  return FormatTable(it->second, items) + NotesBelow(what, items);
}

}  // namespace roci::tools
