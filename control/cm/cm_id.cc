#include "control/cm/cm_id.h"

#include <algorithm>
#include <cerrno>

#include "control/loop/errno_status.h"

namespace roci::control::cm {
namespace {

// Linux's default range (ip_local_port_range).
constexpr uint32_t kFirstEphemeral = 32768;
constexpr uint32_t kLastEphemeral = 60999;
// As in Linux, an IPv4 address never takes an IPv6 port; only IPv6 addresses have the option.
bool IsOfOneFamily(const CmId& id) { return id.family_only || id.source.family == AF_INET; }

constexpr uint32_t kEphemeralCount = kLastEphemeral - kFirstEphemeral + 1;

}  // namespace

absl::Status PortTable::Check(const CmId& id, const std::vector<CmId*>& holders, bool reuse) const {
  for (const CmId* other : holders) {
    if (other == &id || (reuse && other->reuse_address)) continue;
    const bool other_family = id.source.family != other->source.family;
    if (IsOfOneFamily(id) && IsOfOneFamily(*other) && other_family) continue;
    // Linux has different errors for conflicts with a wildcard and for two equal addresses.
    if (id.source.IsAny() || other->source.IsAny()) {
      return StatusFromErrno(EADDRNOTAVAIL, "the port is in use for all addresses");
    }
    if (id.source.gid == other->source.gid) return StatusFromErrno(EADDRINUSE, "address");
  }
  return absl::OkStatus();
}

absl::Status PortTable::Take(CmId& id, uint64_t random) {
  if (id.source.port == 0) {
    for (uint32_t i = 0; i < kEphemeralCount && id.source.port == 0; ++i) {
      const auto port = static_cast<uint16_t>(kFirstEphemeral + (random + i) % kEphemeralCount);
      if (!holders_.contains({id.port_space, port})) id.source.port = port;
    }
    if (id.source.port == 0) return StatusFromErrno(EADDRNOTAVAIL, "no free port");
  }
  std::vector<CmId*>& holders = holders_[{id.port_space, id.source.port}];
  const absl::Status status = Check(id, holders, id.reuse_address);
  if (!status.ok()) return status;
  holders.push_back(&id);
  id.holds_port = true;
  return absl::OkStatus();
}

void PortTable::Give(CmId& id) {
  if (!id.holds_port) return;
  id.holds_port = false;
  const auto it = holders_.find({id.port_space, id.source.port});
  if (it == holders_.end()) return;
  std::erase(it->second, &id);
  if (it->second.empty()) holders_.erase(it);
}

absl::Status PortTable::CheckListen(const CmId& id) const {
  return Check(id, Holders(id.port_space, id.source.port), false);
}

const std::vector<CmId*>& PortTable::Holders(PortSpace space, uint16_t port) const {
  static const std::vector<CmId*> none;
  const auto it = holders_.find({space, port});
  return it == holders_.end() ? none : it->second;
}

}  // namespace roci::control::cm
