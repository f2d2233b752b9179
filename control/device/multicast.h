// How many queue pairs of a device are members of which multicast groups, in all and of each user;
// how many memberships there are is a matter of quotas. Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "control/config/device_limits.h"
#include "control/device/quota.h"
#include "roce/types.h"

namespace roci::control {

class MulticastCensus {
 public:
  // A membership; it ends when this goes. The census outlives it.
  class Membership {
   public:
    Membership(MulticastCensus& census, const roce::Gid& group, const Quota& user)
        : census_(&census), group_(group), user_(&user) {}
    Membership(Membership&& other) noexcept
        : census_(other.census_), group_(other.group_), user_(other.user_) {
      other.census_ = nullptr;
    }
    Membership& operator=(Membership&& other) noexcept;
    ~Membership() { End(); }
    const roce::Gid& group() const { return group_; }

   private:
    void End();
    MulticastCensus* census_;
    roce::Gid group_;
    const Quota* user_;
  };

  // Told when a group gets its first member, and when it has lost its last one.
  using Listener = std::function<void(const roce::Gid& group, bool has_members)>;
  void SetListener(Listener listener) { listener_ = std::move(listener); }

  // `groups`, which outlives the membership: the quota of groups of one user, by which the census
  // knows the user. `most_of_user`: members of one group that may be that user's; `most`: members
  // of one group, of all users, up to which that user may add one. ResourceExhausted: groups or
  // members of this group are at their limit.
  absl::StatusOr<Membership> Join(const roce::Gid& group, Quota& groups, uint32_t most_of_user,
                                  uint32_t most);

  std::vector<roce::Gid> Groups() const;
  uint32_t groups() const { return static_cast<uint32_t>(groups_.size()); }
  uint32_t memberships() const { return total_; }

 private:
  struct Less {
    bool operator()(const roce::Gid& a, const roce::Gid& b) const { return a.bytes < b.bytes; }
  };
  struct OfUser {
    QuotaShare share;
    uint32_t members = 0;
  };
  struct Group {
    uint32_t members = 0;
    std::map<const Quota*, OfUser> users;
  };
  std::map<roce::Gid, Group, Less> groups_;
  uint32_t total_ = 0;
  Listener listener_;
};

}  // namespace roci::control
