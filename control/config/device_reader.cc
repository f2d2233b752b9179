#include "control/config/device_reader.h"

#include <algorithm>
#include <optional>
#include <span>

#include "absl/strings/str_cat.h"
#include "control/config/fault_reader.h"
#include "control/config/named_value.h"
#include "control/config/toml_reader.h"
#include "control/net/addresses.h"
#include "dataplane/port/port_rings.h"

namespace roci::control {
namespace {

constexpr Named<dataplane::FlowControlUse> kPauseUses[] = {
    {"auto", dataplane::FlowControlUse::kAuto},
    {"on", dataplane::FlowControlUse::kOn},
    {"off", dataplane::FlowControlUse::kOff}};
constexpr Named<ReorderUse> kReorderUses[] = {{"go_back_n", ReorderUse::kGoBackN},
                                              {"tolerate", ReorderUse::kTolerate},
                                              {"selective", ReorderUse::kSelective}};

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
  reader.Parsed("reorder", "one of \"go_back_n\", \"tolerate\", \"selective\"",
                [&](const std::string& text) { return Lookup(kReorderUses, text, out.reorder); });
  if (reader.Number("reorder_wait_us", 1, 50'000, out.reorder_wait_us) &&
      out.reorder == ReorderUse::kGoBackN) {
    reader.Fault("reorder_wait_us", "needs reorder = \"tolerate\" or \"selective\"");
  }
}

void ReadPersonality(TomlReader& reader, Personality& out) {
  std::string name;
  if (!reader.String("personality", name)) return;
  absl::StatusOr<Personality> personality = LoadPersonality(name);
  if (personality.ok()) {
    out = *std::move(personality);
  } else {
    reader.Fault("personality", personality.status().message());
  }
}

}  // namespace

void ReadName(TomlReader& reader, std::string& out) {
  reader.Parsed("name", kNameRule, [&](const std::string& text) {
    out = text;
    return IsName(text);
  });
  if (out.empty()) reader.Fault("name", "is required");
}

void ReadDevice(TomlReader& reader, DeviceConfig& out) {
  ReadName(reader, out.name);
  reader.Parsed("mac", "a unicast MAC address like \"02:72:6f:63:69:00\"",
                [&](const std::string& text) {
                  out.mac = ParseMac(text);
                  return out.mac && *out.mac != roce::Mac{} && !out.mac->IsGroup();
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
  ReadPersonality(reader, out.personality);
  ReadFaults(reader, out.faults);
  CongestionUse use{};
  if (ReadCongestionUse(reader, "congestion", use)) out.congestion_use = use;
}

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

}  // namespace roci::control
