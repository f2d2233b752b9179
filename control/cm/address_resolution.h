// Resolution of the addresses and routes of identifiers' peers. Control thread only.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/cm/bindings.h"
#include "control/cm/identifiers.h"
#include "control/cm/port.h"
#include "roce/work.h"

namespace roci::control::cm {

class AddressResolution {
 public:
  AddressResolution(const Ports& ports, Identifiers& ids, Bindings& bindings)
      : ports_(ports), ids_(ids), bindings_(bindings) {}
  AddressResolution(const AddressResolution&) = delete;
  AddressResolution& operator=(const AddressResolution&) = delete;

  // Chooses the device and the source address for `destination`, and starts to resolve it; an event
  // tells the result. Binds `id` to `source` if it is not bound; null: to any address.
  absl::Status Resolve(CmId& id, const SocketAddress* source, const SocketAddress& destination,
                       uint32_t timeout_ms);
  // Ends the resolution for `id`, if one is under way, without an event.
  void End(CmId& id);

  roce::TimeNs NextTimeout() const {
    return deadlines_.empty() ? roce::kNever : deadlines_.begin()->first;
  }
  void HandleTimeout(roce::TimeNs now);

 private:
  void Finish(uint32_t number, const absl::StatusOr<roce::Path>& path);

  const Ports& ports_;
  Identifiers& ids_;
  Bindings& bindings_;
  std::set<std::pair<roce::TimeNs, uint32_t>> deadlines_;  // with the identifier's number
};

// RoCE has no routes to resolve: takes the current settings over into the path. An event tells the
// result.
absl::Status ResolveRoute(CmId& id);

}  // namespace roci::control::cm
