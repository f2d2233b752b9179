#include "control/cm/show.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "control/net/ip_text.h"

namespace roci::control::cm {
namespace {

const char* NameOf(PortSpace space) {
  switch (space) {
    case PortSpace::kTcp:
      return "tcp";
    case PortSpace::kUdp:
      return "udp";
    case PortSpace::kIb:
      return "ib";
    case PortSpace::kIpoib:
      return "ipoib";
  }
  return "?";
}

std::string NameOf(const CmId& id, const Connection* connection) {
  if (connection != nullptr) {
    return std::string(kStateNames[static_cast<size_t>(connection->state)]);
  }
  switch (id.state) {
    case IdState::kIdle:
      return "idle";
    case IdState::kBound:
      return "bound";
    case IdState::kAddressQuery:
      return "address_query";
    case IdState::kAddressResolved:
      return "address_resolved";
    case IdState::kRouteResolved:
      return "route_resolved";
    case IdState::kConnect:
    case IdState::kDisconnected:
      return "disconnected";
    case IdState::kListen:
      return "listen";
  }
  return "?";
}

std::string TextOf(const SocketAddress& address) {
  if (address.family == AF_UNSPEC) return "";
  const std::string ip = address.IsAny() ? "*" : IpText(address.gid);
  return address.family != AF_INET && !address.gid.IsIpv4()
             ? absl::StrCat("[", ip, "]:", address.port)
             : absl::StrCat(ip, ":", address.port);
}

// Null: it has none.
const Connection* ConnectionOf(const CmId& id) {
  return id.port != nullptr && id.connection != 0 ? id.port->engine.Find(id.connection) : nullptr;
}

}  // namespace

std::map<std::string, uint64_t> CountStates(const Server& server) {
  std::map<std::string, uint64_t> counts;
  for (const auto& [number, id] : server.manager().ids().all())
    ++counts[NameOf(*id, ConnectionOf(*id))];
  return counts;
}

nlohmann::json ShowConnections(const Server& server) {
  nlohmann::json out = nlohmann::json::array();
  for (const auto& [number, id] : server.manager().ids().all()) {
    const Connection* connection = ConnectionOf(*id);
    out.push_back({{"id", number},
                   {"pid", id->channel->peer().pid},
                   {"space", NameOf(id->space)},
                   {"state", NameOf(*id, connection)},
                   {"source", TextOf(id->source)},
                   {"destination", TextOf(id->destination)},
                   {"device", id->port != nullptr ? id->port->device.name() : std::string()},
                   {"qpn", id->qpn},
                   {"remote_qpn", connection != nullptr ? connection->remote_qpn : 0u}});
  }
  return out;
}

void AddCounters(const Server& server, bool with_zeros, nlohmann::json& ports) {
  size_t index = 0;
  for (const std::unique_ptr<Port>& port : server.manager().ports()) {
    nlohmann::json counters = nlohmann::json::object();
    const auto add = [&](std::string_view name, uint64_t value) {
      if (with_zeros || value != 0) counters[std::string(name)] = value;
    };
    const Engine::Reasons& reasons = port->engine.reasons();
    for (size_t i = 0; i < reasons.size(); ++i) add(kMadReasonNames[i], reasons[i]);
    add("connections_displaced", port->engine.displaced());
    ports.at(index++)["connection_manager"] = std::move(counters);
  }
}

}  // namespace roci::control::cm
