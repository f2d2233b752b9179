#include "control/cm/port_table.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "control/loop/errno_status.h"

namespace roci::control::cm {
namespace {

constexpr uint16_t kFirst = SharedQuotas::kFirstChosenPort;
constexpr uint16_t kLast = SharedQuotas::kLastChosenPort;
// As in Linux, an IPv4 address never takes an IPv6 port; only IPv6 addresses have the option.
bool IsOfOneFamily(const CmId& id) { return id.family_only || id.source.family == AF_INET; }

}  // namespace

std::optional<uint16_t> PortSet::FirstMissing(uint16_t from, uint16_t last) const {
  uint64_t considered = ~uint64_t{0} << from % kBits;
  for (uint32_t word = from / kBits; word <= last / kBits; ++word) {
    const uint64_t missing = ~words_[word] & considered;
    considered = ~uint64_t{0};
    if (missing == 0) continue;
    const uint32_t port = word * kBits + static_cast<uint32_t>(std::countr_zero(missing));
    return port <= last ? std::optional(static_cast<uint16_t>(port)) : std::nullopt;
  }
  return std::nullopt;
}

absl::Status PortTable::Check(const CmId& id, const std::vector<CmId*>& holders, bool reuse) const {
  for (const CmId* other : holders) {
    if (other == &id || (reuse && other->reuse_address)) continue;
    const bool other_family = id.source.family != other->source.family;
    if (IsOfOneFamily(id) && IsOfOneFamily(*other) && other_family) continue;
    // Linux has different errors for conflicts with a wildcard and for two equal addresses.
    if (id.source.IsAny() || other->source.IsAny()) {
      return StatusFromErrno(EADDRNOTAVAIL, "the port is in use for all addresses");
    }
    if (id.source.gid == other->source.gid)
      return StatusFromErrno(EADDRINUSE, "another identifier has the address and port");
  }
  return absl::OkStatus();
}

absl::Status PortTable::Take(CmId& id, uint64_t random) {
  PortSet& held = held_[id.port_space];
  if (id.source.port == 0) {
    const auto start = static_cast<uint16_t>(kFirst + random % SharedQuotas::kChosenPorts);
    std::optional<uint16_t> port = held.FirstMissing(start, kLast);
    if (!port) port = held.FirstMissing(kFirst, start);
    if (!port) return StatusFromErrno(EADDRNOTAVAIL, "no free port");
    id.source.port = *port;
  }
  std::vector<CmId*>& holders = holders_[{id.port_space, id.source.port}];
  const absl::Status status = Check(id, holders, id.reuse_address);
  if (!status.ok()) return status;
  holders.push_back(&id);
  held.Add(id.source.port);
  id.holds_port = true;
  return absl::OkStatus();
}

void PortTable::Remove(Table& table, CmId& id) {
  const auto it = table.find({id.port_space, id.source.port});
  if (it == table.end()) return;
  std::erase(it->second, &id);
  if (it->second.empty()) table.erase(it);
}

void PortTable::Give(CmId& id) {
  if (!id.holds_port) return;
  id.holds_port = false;
  Remove(listeners_, id);
  Remove(holders_, id);
  if (!holders_.contains({id.port_space, id.source.port})) {
    held_[id.port_space].Remove(id.source.port);
  }
}

absl::Status PortTable::CheckListen(const CmId& id) const {
  return Check(id, Find(holders_, {id.port_space, id.source.port}), false);
}

const std::vector<CmId*>& PortTable::Find(const Table& table, Key key) {
  static const std::vector<CmId*> none;
  const auto it = table.find(key);
  return it == table.end() ? none : it->second;
}

}  // namespace roci::control::cm
