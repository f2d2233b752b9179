// The multicast memberships of a device's queue pairs: members of each group, in all and per user.
// Limits groups and members per group; the number of memberships is limited by a quota. Control
// thread only.
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

class MulticastMemberships {
 public:
  // One membership; the destructor ends it. `memberships` outlives it.
  class Membership {
   public:
    Membership(MulticastMemberships& memberships, const roce::Gid& group, const Quota& user)
        : memberships_(&memberships), group_(group), user_(&user) {}
    Membership(Membership&& other) noexcept
        : memberships_(other.memberships_), group_(other.group_), user_(other.user_) {
      other.memberships_ = nullptr;
    }
    Membership& operator=(Membership&& other) noexcept;
    ~Membership() { End(); }
    const roce::Gid& group() const { return group_; }

   private:
    void End();
    MulticastMemberships* memberships_;
    roce::Gid group_;
    const Quota* user_;
  };

  // `joins` is called before a group gets its first member. False: the group cannot be joined, and
  // gets no member. `leaves` is called after the group has lost its last member.
  struct Listener {
    std::function<bool(const roce::Gid& group)> joins;
    std::function<void(const roce::Gid& group)> leaves;
  };
  void SetListener(Listener listener) { listener_ = std::move(listener); }

  // `groups`: one user's quota of groups, which also identifies the user; it outlives the
  // membership. `most_of_user`: most members of one group that belong to that user. `most`: most
  // members of one group, over all users, after that user adds one. ResourceExhausted: the groups
  // or the members of this group are at their limit, or the listener refuses the group.
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
