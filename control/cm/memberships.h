// The memberships of identifiers in multicast groups, by number. Control thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "absl/status/statusor.h"
#include "control/cm/identifiers.h"
#include "control/cm/port.h"
#include "control/cm/socket_address.h"

namespace roci::control::cm {

class Memberships {
 public:
  static constexpr size_t kMaxOfOne = 64;  // identifier

  explicit Memberships(const Identifiers& ids) : ids_(ids) {}
  Memberships(const Memberships&) = delete;
  Memberships& operator=(const Memberships&) = delete;

  // Returns the number of the membership, which an event tells with `uid`.
  absl::StatusOr<uint32_t> Join(CmId& id, uint64_t uid, const SocketAddress& group, bool send_only);
  // Returns the number of events that the program has fetched and must acknowledge. NotFound;
  // InvalidArgument: the membership belongs to another channel.
  absl::StatusOr<uint32_t> Leave(const Channel& channel, uint32_t number);
  void LeaveAll(CmId& id);

 private:
  const Identifiers& ids_;
  std::map<uint32_t, uint32_t> owners_;  // number of the identifier by that of the membership
  uint32_t last_number_ = 0;
};

}  // namespace roci::control::cm
