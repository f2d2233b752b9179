#include "control/device/multicast.h"

#include <utility>

#include "absl/cleanup/cleanup.h"

namespace roci::control {

absl::StatusOr<MulticastMemberships::Membership> MulticastMemberships::Join(const roce::Gid& group,
                                                                            Quota& groups,
                                                                            uint32_t most_of_user,
                                                                            uint32_t most) {
  const auto known = groups_.find(group);
  const uint32_t members = known != groups_.end() ? known->second.members : 0;
  QuotaShare share;
  if (known == groups_.end() || !known->second.users.contains(&groups)) {
    share = QuotaShare(groups, 1);
    if (!share.ok()) return absl::ResourceExhaustedError("multicast groups");
  } else if (known->second.users.at(&groups).members >= most_of_user) {
    return absl::ResourceExhaustedError("queue pairs of one user in the multicast group");
  }
  if (members >= most) {
    return absl::ResourceExhaustedError("queue pairs of the multicast group");
  }
  if (members == 0 && listener_.joins && !listener_.joins(group)) {
    return absl::ResourceExhaustedError("multicast groups on the network");
  }
  absl::Cleanup leave = [&] {
    if (members == 0 && listener_.leaves) listener_.leaves(group);
  };
  Group& entry = groups_[group];
  OfUser& of_user = entry.users[&groups];
  std::move(leave).Cancel();
  if (share.ok()) of_user.share = std::move(share);
  ++of_user.members;
  ++entry.members;
  ++total_;
  return Membership(*this, group, groups);
}

std::vector<roce::Gid> MulticastMemberships::Groups() const {
  std::vector<roce::Gid> out;
  for (const auto& [group, entry] : groups_) out.push_back(group);
  return out;
}

MulticastMemberships::Membership& MulticastMemberships::Membership::operator=(
    Membership&& other) noexcept {
  if (this == &other) return *this;
  End();
  memberships_ = std::exchange(other.memberships_, nullptr);
  group_ = other.group_;
  user_ = other.user_;
  return *this;
}

void MulticastMemberships::Membership::End() {
  if (memberships_ == nullptr) return;
  --memberships_->total_;
  const auto it = memberships_->groups_.find(group_);
  const auto of_user = it->second.users.find(user_);
  if (--of_user->second.members == 0) it->second.users.erase(of_user);
  if (--it->second.members == 0) {
    memberships_->groups_.erase(it);
    if (memberships_->listener_.leaves) memberships_->listener_.leaves(group_);
  }
  memberships_ = nullptr;
}

}  // namespace roci::control
