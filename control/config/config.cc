#include "control/config/config.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <span>

#include "absl/strings/str_cat.h"
#include "control/config/toml_reader.h"
#include "control/net/addresses.h"
#include "dataplane/port/port_devargs.h"
#include "dataplane/port/port_rings.h"
#include "memory/page.h"

namespace roci::control {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

constexpr Named<LogLevel> kLogLevels[] = {{"error", LogLevel::kError},
                                          {"warning", LogLevel::kWarning},
                                          {"notice", LogLevel::kNotice},
                                          {"info", LogLevel::kInfo},
                                          {"debug", LogLevel::kDebug}};
constexpr Named<HugepageUse> kHugepageUses[] = {
    {"auto", HugepageUse::kAuto}, {"on", HugepageUse::kOn}, {"off", HugepageUse::kOff}};
constexpr Named<dataplane::RealtimeUse> kRealtimeUses[] = {{"auto", dataplane::RealtimeUse::kAuto},
                                                           {"on", dataplane::RealtimeUse::kOn},
                                                           {"off", dataplane::RealtimeUse::kOff}};
constexpr Named<dataplane::Fairness> kFairnesses[] = {
    {"queue_pair", dataplane::Fairness::kQueuePair}, {"user", dataplane::Fairness::kUser}};
constexpr Named<dataplane::FlowControlUse> kPauseUses[] = {
    {"auto", dataplane::FlowControlUse::kAuto},
    {"on", dataplane::FlowControlUse::kOn},
    {"off", dataplane::FlowControlUse::kOff}};
constexpr Named<ReorderUse> kReorderUses[] = {{"go_back_n", ReorderUse::kGoBackN},
                                              {"tolerate", ReorderUse::kTolerate}};
constexpr Named<roci_abi_memory_policy> kMemoryPolicies[] = {
    {"auto", ROCI_ABI_MEMORY_AUTO},
    {"process_vm", ROCI_ABI_MEMORY_PROCESS_VM},
    {"map", ROCI_ABI_MEMORY_MAP}};

template <class Value, size_t kCount>
bool Lookup(const Named<Value> (&table)[kCount], std::string_view name, Value& out) {
  for (const Named<Value>& entry : table) {
    if (entry.name == name) {
      out = entry.value;
      return true;
    }
  }
  return false;
}

// Checks what is known without DPDK, since rte_eal_init() ends the process on some wrong options.
void CheckEalArguments(TomlReader& reader, const std::vector<std::string>& args) {
  if (!args.empty() && args.front().rfind('-', 0) != 0) {
    reader.Fault("eal_args", absl::StrCat("\"", args.front(), "\" is not a DPDK option"));
  }
  for (const std::string& arg : args) {
    const std::string name = arg.substr(0, arg.find('='));
    for (const char* taken : {"-", "--", "-h", "--help", "-v", "--version", "-l", "-c", "--lcores",
                              "--main-lcore", "--file-prefix"}) {
      if (name == taken)
        reader.Fault("eal_args", absl::StrCat("\"", name, "\" is not allowed here"));
    }
  }
}

void ReadDaemon(TomlReader& reader, DaemonConfig& out) {
  reader.Number("lcores", 1, dataplane::kMaxLcores, out.lcores);
  reader.Numbers("pin", 0, 1023, out.pin);
  if (!out.pin.empty() && out.pin.size() != out.lcores) {
    reader.Fault("pin", absl::StrCat("needs one processor per lcore, ", out.lcores));
  }
  reader.Parsed("hugepages", "one of \"auto\", \"on\", \"off\"", [&](const std::string& text) {
    return Lookup(kHugepageUses, text, out.hugepages);
  });
  reader.Number("memory_mib", 0, 1 << 20, out.memory_mib);
  reader.Bool("spin", out.spin);
  reader.Number("idle_sleep_us", 0, 1'000'000, out.idle_sleep_us);
  reader.Parsed("realtime", "one of \"auto\", \"on\", \"off\"",
                [&](const std::string& text) { return Lookup(kRealtimeUses, text, out.realtime); });
  reader.Parsed("fairness", "one of \"queue_pair\", \"user\"",
                [&](const std::string& text) { return Lookup(kFairnesses, text, out.fairness); });
  reader.Parsed("log_level", "one of \"error\", \"warning\", \"notice\", \"info\", \"debug\"",
                [&](const std::string& text) { return Lookup(kLogLevels, text, out.log_level); });
  std::string metrics;
  if (reader.String("metrics", metrics)) {
    absl::StatusOr<MetricsAddress> address = ParseMetricsAddress(metrics);
    if (address.ok()) {
      out.metrics = *std::move(address);
    } else {
      reader.Fault("metrics", address.status().message());
    }
  }
  reader.Bool("telemetry", out.telemetry);
  reader.Strings("eal_args", out.eal_args);
  CheckEalArguments(reader, out.eal_args);
}

void ReadMemory(TomlReader& reader, MemoryConfig& out) {
  reader.Parsed("policy", "one of \"auto\", \"process_vm\", \"map\"",
                [&](const std::string& text) { return Lookup(kMemoryPolicies, text, out.policy); });
  reader.Number("auto_inline", 0, dataplane::kMaxInlineBytes, out.auto_inline);
}

void ReadLimits(TomlReader& reader, LimitsConfig& out) {
  const DeviceLimits most;  // the defaults are also the maxima
  reader.Number("max_qp", 1, most.max_qp, out.device.max_qp);
  reader.Number("max_cq", 1, most.max_cq, out.device.max_cq);
  reader.Number("max_mr", 1, most.max_mr, out.device.max_mr);
  reader.Number("max_mw", 1, most.max_mw, out.device.max_mw);
  reader.Number("max_dm_bytes", memory::kPageBytes, most.max_dm_bytes, out.device.max_dm_bytes);
  reader.Number("max_pd", 1, most.max_pd, out.device.max_pd);
  reader.Number("max_ah", 1, most.max_ah, out.device.max_ah);
  reader.Number("max_srq", 1, most.max_srq, out.device.max_srq);
  reader.Number("max_srq_wr", 1, most.max_srq_wr, out.device.max_srq_wr);
  reader.Number("max_qp_wr", 1, most.max_qp_wr, out.device.max_qp_wr);
  reader.Number("max_cqe", 1, most.max_cqe, out.device.max_cqe);
  reader.Number("max_rd_atomic", 1, most.max_rd_atomic, out.device.max_rd_atomic);
  reader.Number("max_sessions", 1, 65536, out.max_sessions);
  reader.Number("ring_memory_mib", 1, 1 << 24, out.ring_memory_mib);
  reader.Number("user_percent", 1, 100, out.user_percent);
}

static_assert(ROCI_ABI_DEVICE_NAME_MAX == 64);
constexpr char kNameRule[] = "a name of at most 63 letters, digits, '_' and '-'";

// Names end up in sysfs paths and in the plugin's messages.
bool IsName(std::string_view name) {
  if (name.empty() || name.size() >= ROCI_ABI_DEVICE_NAME_MAX) return false;
  for (const char c : name) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == '-';
    if (!ok) return false;
  }
  return true;
}

void ReadName(TomlReader& reader, std::string& out) {
  reader.Parsed("name", kNameRule, [&](const std::string& text) {
    out = text;
    return IsName(text);
  });
  if (out.empty()) reader.Fault("name", "is required");
}

void ReadAddresses(TomlReader& reader, std::vector<InterfaceAddress>& out) {
  reader.ParsedEach(
      "addresses", "an IPv4 or IPv6 unicast address with a prefix length",
      [&](const std::string& text) {
        const std::optional<InterfaceAddress> address = ParseInterfaceAddress(text);
        if (!address || !IsUsableAddress(address->gid)) return false;
        if (text.find('/') == std::string::npos) {
          reader.Fault("addresses", absl::StrCat(text, " needs a prefix length, as in ", text,
                                                 address->gid.IsIpv4() ? "/24" : "/64"));
        } else if (address->prefix_length == 0) {
          reader.Fault("addresses", absl::StrCat(text, " needs a prefix length greater than 0"));
        }
        if (!IsHostAddress(*address)) {
          reader.Fault("addresses",
                       absl::StrCat(text, " is a network or broadcast address, not a host's"));
        }
        out.push_back(*address);
        return true;
      });
  for (size_t i = 0; i < out.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (out[i].gid == out[j].gid) {
        reader.Fault("addresses", absl::StrCat(IpText(out[i].gid), " is listed more than once"));
      }
    }
  }
}

void ReadGateway(TomlReader& reader, const char* key, bool ipv4, std::optional<roce::Gid>& out) {
  reader.Parsed(key, ipv4 ? "an IPv4 unicast address" : "an IPv6 unicast address",
                [&](const std::string& text) {
                  out = ParseIp(text);
                  return out && out->IsIpv4() == ipv4 && IsUsableAddress(*out);
                });
}

// A gateway must be a neighbour. (An IPv6 gateway may be link-local: every device has a link-local
// address.)
void CheckGateway(TomlReader& reader, const char* key, const std::optional<roce::Gid>& gateway,
                  std::span<const InterfaceAddress> addresses) {
  if (!gateway) return;
  const std::string fault = GatewayFault({*gateway}, addresses);
  if (!fault.empty()) reader.Fault(key, fault);
}

void ReadRoutes(TomlReader& reader, std::vector<Route>& out) {
  reader.ParsedEach("routes", "a string, \"NETWORK via GATEWAY\"", [&](const std::string& text) {
    const absl::StatusOr<Route> route = ParseRoute(text);
    if (route.ok()) {
      out.push_back(*route);
    } else {
      reader.Fault("routes", absl::StrCat("\"", text, "\": ", route.status().message()));
    }
    return true;
  });
}

// The default routes through the gateways, then the configured routes.
template <class Network>
std::vector<Route> AllRoutes(const Network& network, uint16_t vlan) {
  std::vector<Route> out;
  for (const std::optional<roce::Gid>& gateway : {network.gateway4, network.gateway6}) {
    if (gateway) out.push_back(DefaultRoute(*gateway, vlan));
  }
  out.insert(out.end(), network.routes.begin(), network.routes.end());
  return out;
}

template <class Network>
void CheckRoutes(TomlReader& reader, const Network& network) {
  for (const Route& route : network.routes) {
    const std::string fault = RouteFault(route, network.addresses);
    if (!fault.empty()) reader.Fault("routes", absl::StrCat(RouteText(route), ": ", fault));
  }
  std::vector<Route> all = AllRoutes(network, 0);
  std::sort(all.begin(), all.end(), ComesBefore);
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i].network != all[i - 1].network) continue;
    reader.Fault("routes", absl::StrCat(NetworkText(all[i].network), " is listed more than once",
                                        all[i].network.prefix_length == 0
                                            ? " (gateway4 and gateway6 are default routes)"
                                            : ""));
  }
}

template <class Network>
void ReadNetwork(TomlReader& reader, Network& out) {
  ReadAddresses(reader, out.addresses);
  ReadGateway(reader, "gateway4", true, out.gateway4);
  ReadGateway(reader, "gateway6", false, out.gateway6);
  CheckGateway(reader, "gateway4", out.gateway4, out.addresses);
  CheckGateway(reader, "gateway6", out.gateway6, out.addresses);
  ReadRoutes(reader, out.routes);
  CheckRoutes(reader, out);
}

// "FROM:TO", both 0 to 7, as in ip-link(8).
bool ReadQosMapping(const std::string& text, VlanSettings& out) {
  const auto is_digit = [](char c) { return c >= '0' && c < '0' + kPriorities; };
  if (text.size() != 3 || !is_digit(text[0]) || text[1] != ':' || !is_digit(text[2])) return false;
  out.egress_qos_map[static_cast<size_t>(text[0] - '0')] = static_cast<uint8_t>(text[2] - '0');
  return true;
}

void ReadVlans(TomlReader& reader, DeviceConfig& out) {
  reader.Tables("vlan", [&](TomlReader& table, size_t) {
    VlanSettings vlan;
    uint32_t id = 0;
    if (!table.Number("id", 1, roce::VlanTag::kMaxId, id)) table.Fault("id", "is required");
    vlan.id = static_cast<uint16_t>(id);
    for (const VlanSettings& other : out.vlans) {
      if (other.id == vlan.id) table.Fault("id", "another VLAN of this device has this id");
    }
    ReadNetwork(table, vlan);
    for (InterfaceAddress& address : vlan.addresses) address.vlan = vlan.id;
    for (Route& route : vlan.routes) route.network.vlan = vlan.id;
    table.ParsedEach("egress_qos_map", "\"FROM:TO\", two priorities of 0 to 7",
                     [&](const std::string& text) { return ReadQosMapping(text, vlan); });
    out.vlans.push_back(std::move(vlan));
  });
}

void CheckTableSizes(TomlReader& reader, const DeviceConfig& device) {
  if (RoutesOf(device).size() > AddressTable::kMostRoutes) {
    reader.Fault("routes", absl::StrCat("more than ", AddressTable::kMostRoutes,
                                        " (with the gateways and the routes of VLANs)"));
  }
  // Each network also has a link-local address.
  size_t entries = 1 + device.addresses.size();
  for (const VlanSettings& vlan : device.vlans) entries += 1 + vlan.addresses.size();
  if (entries <= AddressTable::kMostEntries) return;
  reader.Fault("addresses",
               absl::StrCat("more than ", AddressTable::kMostEntries - 1,
                            " (with the addresses of VLANs and one link-local address per VLAN)"));
}

// Keys of a device on a port.
void ReadPortSettings(TomlReader& reader, const DeviceConfig& device,
                      dataplane::PortSettings& out) {
  const auto need_port = [&](const char* key) {
    if (device.port.empty()) reader.Fault(key, "a device on a wire has no port to set");
  };
  if (reader.Number("rx_ring", dataplane::kMinRxRing, dataplane::kMaxRxRing, out.rx_ring)) {
    need_port("rx_ring");
    const std::string fault = dataplane::FaultOfRxRing(device.port);
    if (!device.port.empty() && !fault.empty()) reader.Fault("rx_ring", fault);
  }
  reader.Parsed("pause", "one of \"auto\", \"on\", \"off\"", [&](const std::string& text) {
    need_port("pause");
    return Lookup(kPauseUses, text, out.pause);
  });
  std::vector<uint32_t> priorities;
  reader.Numbers("pfc", 0, kPriorities - 1, priorities);
  for (const uint32_t priority : priorities) {
    need_port("pfc");
    out.pfc_priorities = static_cast<uint8_t>(out.pfc_priorities | 1U << priority);
  }
  if (out.pfc_priorities != 0 && out.pause == dataplane::FlowControlUse::kOn) {
    reader.Fault("pfc", "a link has either pause = \"on\" or PFC");
  }
  uint32_t percent = 0;
  if (reader.Number("rx_backlog_percent", 0, 99, percent)) {
    need_port("rx_backlog_percent");
    out.rx_backlog_percent = static_cast<uint8_t>(percent);
  }
}

// The upper limit: below the ACK timeouts that peers commonly have (67 ms or more), after which
// they send everything again.
void ReadReordering(TomlReader& reader, DeviceConfig& out) {
  reader.Parsed("reorder", "one of \"go_back_n\", \"tolerate\"",
                [&](const std::string& text) { return Lookup(kReorderUses, text, out.reorder); });
  if (reader.Number("reorder_wait_us", 1, 50'000, out.reorder_wait_us) &&
      out.reorder == ReorderUse::kGoBackN) {
    reader.Fault("reorder_wait_us", "needs reorder = \"tolerate\"");
  }
}

void ReadDevice(TomlReader& reader, DeviceConfig& out) {
  ReadName(reader, out.name);
  reader.Parsed("mac", "a unicast MAC address like \"02:72:6f:63:69:00\"",
                [&](const std::string& text) {
                  out.mac = ParseMac(text);
                  return out.mac && *out.mac != roce::Mac{} && (out.mac->bytes[0] & 1) == 0;
                });
  ReadNetwork(reader, out);
  ReadVlans(reader, out);
  CheckTableSizes(reader, out);
  reader.String("wire", out.wire);
  reader.String("port", out.port);
  if (out.wire.empty() == out.port.empty()) {
    reader.Fault(out.wire.empty() ? "wire" : "port", "a device needs either a wire or a port");
  }
  out.mtu = out.wire.empty() ? kDefaultPortMtuBytes : kDefaultWireMtuBytes;
  reader.Number("mtu", kMinMtuBytes, dataplane::kMaxMtuBytes, out.mtu);
  reader.Number("rate_mbps", 1, 1'600'000, out.rate_mbps);
  ReadPortSettings(reader, out, out.port_settings);
  ReadReordering(reader, out);
  CongestionUse use{};
  if (ReadCongestionUse(reader, "congestion", use)) out.congestion_use = use;
}

roce::Mac DefaultMac(size_t index) {
  return roce::Mac{{0x02, 'r', 'o', 'c', 'i', static_cast<uint8_t>(index)}};
}

void ReadWires(TomlReader& reader, Config& config) {
  std::set<std::string> names;
  reader.Tables("wire", [&](TomlReader& table, size_t) {
    WireConfig& wire = config.wires.emplace_back();
    ReadName(table, wire.name);
    if (!names.insert(wire.name).second) table.Fault("name", "another wire has this name");
  });
}

bool HasWire(const Config& config, const std::string& name) {
  for (const WireConfig& wire : config.wires) {
    if (wire.name == name) return true;
  }
  return false;
}

// Checks that devices do not share a name or a port, nor a MAC or an address on one wire.
void CheckAgainstOthers(TomlReader& reader, const Config& config, const DeviceConfig& device) {
  for (const DeviceConfig& other : config.devices) {
    if (&other == &device) continue;
    if (other.name == device.name) reader.Fault("name", "another device has this name");
    if (!device.port.empty() && !other.port.empty() &&
        dataplane::PortName(other.port) == dataplane::PortName(device.port)) {
      reader.Fault("port", absl::StrCat(other.name, " already uses port ",
                                        dataplane::PortName(device.port)));
    }
    if (device.wire.empty() || other.wire != device.wire) continue;
    if (other.mac == device.mac) {  // both are set: devices on a wire have a default MAC
      reader.Fault("mac", absl::StrCat(other.name, " on the same wire has this MAC"));
    }
    for (const InterfaceAddress& address : AddressesOf(device)) {
      for (const InterfaceAddress& taken : AddressesOf(other)) {
        if (address.net() != taken.net()) continue;
        reader.Fault("addresses", absl::StrCat(NetText(address.net()), " belongs to ", other.name,
                                               " on the same wire"));
      }
    }
  }
}

void ReadDevices(TomlReader& reader, Config& config) {
  reader.Tables("device", [&](TomlReader& table, size_t index) {
    if (index >= kMaxDevices) {
      return table.Fault("name", absl::StrCat("more than ", kMaxDevices, " devices"));
    }
    DeviceConfig& device = config.devices.emplace_back();
    ReadDevice(table, device);
    if (!device.wire.empty()) {
      if (!HasWire(config, device.wire)) table.Fault("wire", "no [[wire]] has this name");
      if (!device.mac) device.mac = DefaultMac(index);
    }
    CheckAgainstOthers(table, config, device);
    device.congestion = CongestionOf(config.congestion, device.congestion_use, !device.wire.empty(),
                                     device.rate_mbps);
    const uint32_t least_mbps = config.congestion.parameters.min_rate_kbps / 1000;
    if (device.congestion && device.rate_mbps < least_mbps) {
      table.Fault("rate_mbps",
                  absl::StrCat("is less than min_rate_mbps of [congestion], ", least_mbps));
    }
  });
}

void AddDefaultDevices(Config& config) {
  config.wires = {{.name = "wire0"}};
  for (size_t i = 0; i < 2; ++i) {
    DeviceConfig& device = config.devices.emplace_back();
    device.name = absl::StrCat("roci", i);
    device.mac = DefaultMac(i);
    device.addresses = {*ParseInterfaceAddress(absl::StrCat("10.99.0.", i + 1, "/24")),
                        *ParseInterfaceAddress(absl::StrCat("fd72:6f63:6900::", i + 1, "/64"))};
    device.mtu = kDefaultWireMtuBytes;
    device.wire = "wire0";
    device.congestion = CongestionOf(config.congestion, std::nullopt, true, device.rate_mbps);
  }
}

}  // namespace

std::string_view NameOf(ReorderUse use) {
  for (const Named<ReorderUse>& entry : kReorderUses) {
    if (entry.value == use) return entry.name;
  }
  return "";
}

std::vector<InterfaceAddress> AddressesOf(const DeviceConfig& device) {
  std::vector<InterfaceAddress> out = device.addresses;
  for (const VlanSettings& vlan : device.vlans) {
    out.insert(out.end(), vlan.addresses.begin(), vlan.addresses.end());
  }
  return out;
}

std::vector<Route> RoutesOf(const DeviceConfig& device) {
  std::vector<Route> out = AllRoutes(device, 0);
  for (const VlanSettings& vlan : device.vlans) {
    const std::vector<Route> routes = AllRoutes(vlan, vlan.id);
    out.insert(out.end(), routes.begin(), routes.end());
  }
  return out;
}

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  LogLevel level;
  if (!Lookup(kLogLevels, name, level)) return std::nullopt;
  return level;
}

Config DefaultConfig() {
  Config config;
  AddDefaultDevices(config);
  return config;
}

absl::StatusOr<Config> ParseConfig(std::string_view text, const std::string& file) {
  TomlFaults faults(file);
  Config config;
  try {
    const toml::table table = toml::parse(text, file);
    TomlReader reader(table, "", faults);
    reader.Table("daemon", [&](TomlReader& t) { ReadDaemon(t, config.daemon); });
    reader.Table("memory", [&](TomlReader& t) { ReadMemory(t, config.memory); });
    reader.Table("limits", [&](TomlReader& t) { ReadLimits(t, config.limits); });
    reader.Table("congestion", [&](TomlReader& t) { ReadCongestion(t, config.congestion); });
    ReadWires(reader, config);
    ReadDevices(reader, config);
    reader.RefuseOthers();
    if (config.devices.empty() && !config.wires.empty()) {
      reader.Fault("wire", "no [[device]] uses it");
    }
  } catch (const toml::parse_error& error) {
    const std::string_view description = error.description();
    faults.Add(error.source(), "", absl::string_view(description.data(), description.size()));
  }
  if (!faults.status().ok()) return faults.status();
  if (config.devices.empty()) AddDefaultDevices(config);
  return config;
}

absl::StatusOr<Config> LoadConfig(const std::string& file) {
  std::FILE* stream = std::fopen(file.c_str(), "re");
  std::string text;
  if (stream != nullptr) {
    char buffer[4096];
    while (const size_t count = std::fread(buffer, 1, sizeof(buffer), stream)) {
      text.append(buffer, count);
      if (text.size() > kMaxFileBytes) break;
    }
  }
  const bool failed = stream == nullptr || std::ferror(stream);
  const int error = errno;
  if (stream != nullptr) std::fclose(stream);
  if (failed) {
    return absl::NotFoundError(absl::StrCat(file, ": cannot be read: ", std::strerror(error)));
  }
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": longer than ", kMaxFileBytes, " bytes, not a configuration"));
  }
  return ParseConfig(text, file);
}

}  // namespace roci::control
