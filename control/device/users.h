// Quotas of each user in resources that all users share, so that no user can take all of them.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "control/config/config.h"
#include "control/device/device.h"
#include "control/device/quota.h"
#include "control/loop/loop_share.h"
#include "dataplane/base/event_writer.h"
#include "dataplane/types/copy_use.h"
#include "memory/unmapper.h"

namespace roci::control {

// Of each of librdmacm's port spaces: identifiers that hold one of the ports from which the daemon
// chooses for identifiers without a port.
inline constexpr size_t kPortSpaces = 4;
using PortQuotas = std::array<Quota, kPortSpaces>;

// Resources that all sessions of the daemon share, apart from those of each device.
struct SharedQuotas {
  static constexpr uint64_t kMaxEventChannels = 16'384;
  // librdmacm's table has 65536 numbers; 0 is none.
  static constexpr uint64_t kMaxIdentifiers = 65'535;
  // More than the connections of all identifiers make without further requests.
  static constexpr uint64_t kMaxConnectionEvents = 8 * kMaxIdentifiers;
  // A part of the 128 TiB of virtual addresses of a process (x86-64, four-level paging). A limit is
  // necessary, since a sparse file may have any length.
  static constexpr uint64_t kMaxAppBytes = uint64_t{32} << 40;
  Quota sessions;
  Quota descriptors;                      // that sessions keep open
  Quota ring_memory;                      // bytes of queues and completion queues
  Quota ring_mappings;                    // their VMAs in the daemon
  Quota app_mappings;                     // see kMaxAppMappings
  Quota app_bytes = Quota(kMaxAppBytes);  // virtual addresses of app_mappings
  // Of the connection manager.
  Quota event_channels = Quota(kMaxEventChannels);
  Quota identifiers = Quota(kMaxIdentifiers);
  Quota connection_events = Quota(kMaxConnectionEvents);  // that wait in event channels
  // Linux's default range of ports (ip_local_port_range).
  static constexpr uint16_t kFirstChosenPort = 32768;
  static constexpr uint16_t kLastChosenPort = 60999;
  static constexpr uint64_t kChosenPorts = kLastChosenPort - kFirstChosenPort + 1;
  PortQuotas ports = {
      {Quota(kChosenPorts), Quota(kChosenPorts), Quota(kChosenPorts), Quota(kChosenPorts)}};
  // Memory that the daemon's cgroup may have. Pages of programs' files that the daemon touches
  // first are charged to it, so all ordinary users' mappings are limited to that.
  uint64_t charged_bytes = UINT64_MAX;
};

// The objects of each device that ordinary users share: all but a reserve of a sixteenth. Control
// thread only.
class SharedDeviceQuotas {
 public:
  // The part of `whole`, the quotas of a device with `limits`. `whole` outlives this.
  DeviceQuotas& Of(const DeviceLimits& limits, DeviceQuotas& whole);

 private:
  std::map<const DeviceQuotas*, DeviceQuotas> devices_;
};

// The quotas of one user. Control thread only.
class User {
 public:
  // State that outlives the User and passes to the account's next User.
  struct Uses {
    // Limits of the dataplane for copies to and from the user's programs. Copies that wait for
    // memory outlive the sessions.
    std::shared_ptr<dataplane::CopyUse> copies;
    // Mappings that are not unmapped yet, which the quotas do not count any more: of program memory
    // (app_mappings, app_bytes) and of queues (ring_mappings, ring_memory).
    std::shared_ptr<memory::RetiredUse> retired;
    std::shared_ptr<memory::RetiredUse> retired_rings;
    // Null: a trusted user, whose events may take long to write.
    std::shared_ptr<dataplane::EventWriter> event_writer;
  };
  // `percent` of each limit of `whole`, at least one; taken from `from`. `from_devices`: quotas
  // from which the user's part of each device is taken; null: the user may take the reserve.
  User(const SharedQuotas& whole, SharedQuotas& from, SharedDeviceQuotas* from_devices,
       uint32_t percent, Uses uses);

  Quota sessions;
  Quota descriptors;
  Quota ring_memory;
  Quota ring_mappings;
  Quota app_mappings;
  Quota app_bytes;
  Quota event_channels;
  Quota identifiers;
  Quota connection_events;
  PortQuotas ports;

  // See Uses.
  const std::shared_ptr<dataplane::CopyUse> copy_use;
  const std::shared_ptr<memory::RetiredUse> retired;
  static constexpr uint32_t kMostRetired = 1024;
  static constexpr uint64_t kMostRetiredBytes = uint64_t{4} << 40;
  const std::shared_ptr<memory::RetiredUse> retired_rings;
  static constexpr uint32_t kMostRetiredRings = 256;
  static constexpr uint64_t kMostRetiredRingBytes = uint64_t{256} << 20;
  const std::shared_ptr<dataplane::EventWriter> event_writer;
  // Of the control thread, for requests of the user's programs.
  const std::shared_ptr<LoopShare> loop_share = std::make_shared<LoopShare>();
  // Sessions that have ended, and release their objects in parts.
  uint32_t ending_sessions = 0;

  // Charges the rings of one object. Check ok() of the result.
  RingShare TakeRings(uint64_t bytes, uint64_t mappings = 1) {
    return {QuotaShare(ring_memory, bytes), QuotaShare(ring_mappings, mappings)};
  }
  // Charges the mappings of one region. Check ok() of the result.
  AppShare TakeAppMappings(uint64_t mappings, uint64_t bytes) {
    return {QuotaShare(app_mappings, mappings), QuotaShare(app_bytes, bytes)};
  }

  // Whether more of the programs' memory may be mapped: not while too much waits to be unmapped, of
  // this user or of all.
  bool MayMap() const;
  // Whether the user's programs must wait until large queues that they have destroyed are unmapped.
  bool MustAwaitRings() const {
    return retired_rings->mappings > kMostRetiredRings ||
           retired_rings->bytes > kMostRetiredRingBytes;
  }

  // `limits` of a device with the numbers of objects reduced to the user's part.
  DeviceLimits LimitsOf(const DeviceLimits& limits) const;
  // Number of objects of all users below which this user may add one: `limit`, for ordinary users
  // minus the reserve.
  uint32_t MostOf(uint32_t limit) const;
  // The user's part of `whole`, which outlives this.
  DeviceQuotas& QuotasOf(const DeviceLimits& limits, DeviceQuotas& whole);

 private:
  SharedDeviceQuotas* const from_devices_;
  const uint32_t percent_;
  std::map<const DeviceQuotas*, DeviceQuotas> devices_;
};

// A share of one of a user's quotas that keeps the user alive.
class UserShare {
 public:
  UserShare() = default;
  // `quota`: one of `user`. Check ok() afterwards.
  UserShare(std::shared_ptr<User> user, Quota& quota, uint64_t amount)
      : user_(std::move(user)), share_(quota, amount) {}
  UserShare(UserShare&&) noexcept = default;
  UserShare& operator=(UserShare&& other) noexcept {
    share_ = std::move(other.share_);  // gives the old share back while its quota exists
    user_ = std::move(other.user_);
    return *this;
  }
  bool ok() const { return share_.ok(); }

 private:
  std::shared_ptr<User> user_;
  QuotaShare share_;
};

// Control thread only.
class Users {
 public:
  // Trusted users (HasRightsOfDaemon of privilege.h) may take everything. Each other user may take
  // `percent`, and all others together everything but a reserve of a sixteenth, of the daemon's
  // resources and of each device's objects, so that an administrator always has some. (A limit
  // below 16 has no reserve.) All user IDs of one account (Learn) share one quota. Subordinate IDs
  // are never trusted, also those of root and of the daemon's user.
  Users(SharedQuotas& whole, uint32_t percent);

  // Returns the user of the account that owns `uid`, which is `uid` itself unless Learn() said
  // something else. Freed with its last reference.
  std::shared_ptr<User> Get(uid_t uid, bool is_trusted = false);
  // `uid` belongs to `account` (AccountOf of subordinate_ids.h, which may block). Only some
  // thousands are kept.
  void Learn(uid_t uid, uid_t account);
  bool Knows(uid_t uid) const { return accounts_.contains(uid); }
  // A user without a program, for work of the daemon itself.
  std::shared_ptr<User> MakeInternal();

 private:
  SharedQuotas& whole_;
  SharedQuotas others_;  // shared by all untrusted users
  SharedDeviceQuotas device_others_;
  const uint32_t percent_;
  static constexpr size_t kMostAccounts = 4096;
  uid_t AccountOf(uid_t uid) const;

  std::map<uid_t, uid_t> accounts_;
  // The parts have separate lifetimes.
  struct Known {
    std::weak_ptr<User> user;
    std::weak_ptr<memory::RetiredUse> retired;
    std::weak_ptr<memory::RetiredUse> retired_rings;
    // Kept after the last session if the account has delayed lcores, so that it stays marked.
    std::shared_ptr<dataplane::CopyUse> copies;
    std::shared_ptr<dataplane::EventWriter> event_writer;
  };
  std::map<std::pair<uid_t, bool>, Known> users_;  // by account, and whether it is trusted
};

}  // namespace roci::control
