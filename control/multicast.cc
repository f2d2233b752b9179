#include "control/multicast.h"

#include <utility>

namespace roci::control {

absl::StatusOr<MulticastCensus::Membership> MulticastCensus::Join(const roce::Gid& group) {
  const auto it = members_.find(group);
  if (it == members_.end() && members_.size() >= kMaxMulticastGroups) {
    return absl::ResourceExhaustedError("multicast groups");
  }
  if (it != members_.end() && it->second >= kMaxMulticastMembers) {
    return absl::ResourceExhaustedError("queue pairs of the multicast group");
  }
  if (++members_[group] == 1 && listener_) listener_(group, true);
  ++total_;
  return Membership(*this, group);
}

std::vector<roce::Gid> MulticastCensus::Groups() const {
  std::vector<roce::Gid> out;
  for (const auto& [group, count] : members_) out.push_back(group);
  return out;
}

MulticastCensus::Membership& MulticastCensus::Membership::operator=(Membership&& other) noexcept {
  if (this == &other) return *this;
  End();
  census_ = std::exchange(other.census_, nullptr);
  group_ = other.group_;
  return *this;
}

void MulticastCensus::Membership::End() {
  if (census_ == nullptr) return;
  --census_->total_;
  const auto it = census_->members_.find(group_);
  if (--it->second == 0) {
    census_->members_.erase(it);
    if (census_->listener_) census_->listener_(group_, false);
  }
  census_ = nullptr;
}

}  // namespace roci::control
