// The port numbers that identifiers hold, as in Linux. Control thread only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "control/cm/cm_id.h"
#include "control/cm/ip_service.h"

namespace roci::control::cm {

// Ports of one port space.
class PortSet {
 public:
  void Add(uint16_t port) { words_[port / kBits] |= Bit(port); }
  void Remove(uint16_t port) { words_[port / kBits] &= ~Bit(port); }
  // The first port from `from` to `last` that is not in the set. Nothing: all are.
  std::optional<uint16_t> FirstMissing(uint16_t from, uint16_t last) const;

 private:
  static constexpr uint32_t kBits = 64;
  static uint64_t Bit(uint16_t port) { return uint64_t{1} << port % kBits; }
  std::array<uint64_t, (UINT16_MAX + 1) / kBits> words_{};
};

// The identifiers that hold each port of each port space, with the conflict rules of Linux.
class PortTable {
 public:
  // Takes id.source.port of id.port_space; 0: a free port. Fails with EADDRINUSE or EADDRNOTAVAIL.
  absl::Status Take(CmId& id, uint64_t random);
  void Give(CmId& id);
  // OK if `id` may listen: its address overlaps with no other holder's, reusable or not.
  absl::Status CheckListen(const CmId& id) const;
  // `id`, which holds a port, listens until Give().
  void Listen(CmId& id) { listeners_[{id.port_space, id.source.port}].push_back(&id); }
  const std::vector<CmId*>& Listeners(PortSpace space, uint16_t port) const {
    return Find(listeners_, {space, port});
  }

 private:
  using Key = std::pair<PortSpace, uint16_t>;
  using Table = std::map<Key, std::vector<CmId*>>;
  static const std::vector<CmId*>& Find(const Table& table, Key key);
  static void Remove(Table& table, CmId& id);
  absl::Status Check(const CmId& id, const std::vector<CmId*>& holders, bool reuse) const;
  Table holders_;
  Table listeners_;                    // few, while a port may have very many holders
  std::map<PortSpace, PortSet> held_;  // for Take(), which would else look for long
};

}  // namespace roci::control::cm
