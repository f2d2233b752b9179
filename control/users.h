// What the sessions of one user may take of what all users share, so that no user can shut out the
// others.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>

#include "control/config.h"
#include "control/device.h"
#include "control/quota.h"

namespace roci::control {

// What all sessions of the daemon share, besides what belongs to one device.
struct SharedQuotas {
  static constexpr uint64_t kMaxEventChannels = 16'384;
  Quota sessions;
  Quota descriptors;                                // that sessions keep open
  Quota ring_memory;                                // bytes of queues and completion queues
  Quota app_mappings;                               // see kMaxAppMappings
  Quota event_channels = Quota(kMaxEventChannels);  // of the connection manager
};

// One user's part. Control thread only.
class User {
 public:
  // `percent` of each limit of `whole`, but at least one; taken from `from`.
  User(const SharedQuotas& whole, SharedQuotas& from, uint32_t percent);

  Quota sessions;
  Quota descriptors;
  Quota ring_memory;
  Quota app_mappings;
  Quota event_channels;

  // What the user may have of a device with `limits`; numbers that are no counts stay.
  DeviceLimits LimitsOf(const DeviceLimits& limits) const;
  // The user's part of `whole`, which outlives this.
  DeviceQuotas& QuotasOf(const DeviceLimits& limits, DeviceQuotas& whole);

 private:
  const uint32_t percent_;
  std::map<const DeviceQuotas*, DeviceQuotas> devices_;
};

// Control thread only.
class Users {
 public:
  // Root and `owner`, whom the daemon runs as, may take everything; each of the others `percent` of
  // it, and all of them together all but a reserve of a sixteenth: so that there is always
  // something left for whoever has to look after the daemon.
  Users(SharedQuotas& whole, uid_t owner, uint32_t percent);

  // Kept for as long as somebody holds it.
  std::shared_ptr<User> Get(uid_t uid);

 private:
  SharedQuotas& whole_;
  SharedQuotas others_;  // what all but root and the owner share
  const uid_t owner_;
  const uint32_t percent_;
  std::map<uid_t, std::weak_ptr<User>> users_;
};

}  // namespace roci::control
