// How many queue pairs of a device are members of which multicast groups, against the limits that
// the device advertises; how many there are in all is a matter of quotas. Control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "control/device_limits.h"
#include "roce/types.h"

namespace roci::control {

class MulticastCensus {
 public:
  // A membership; it ends when this goes. The census outlives it.
  class Membership {
   public:
    Membership(MulticastCensus& census, const roce::Gid& group) : census_(&census), group_(group) {}
    Membership(Membership&& other) noexcept : census_(other.census_), group_(other.group_) {
      other.census_ = nullptr;
    }
    Membership& operator=(Membership&& other) noexcept;
    ~Membership() { End(); }
    const roce::Gid& group() const { return group_; }

   private:
    void End();
    MulticastCensus* census_;
    roce::Gid group_;
  };

  // Told when a group gets its first member, and when it has lost its last one.
  using Listener = std::function<void(const roce::Gid& group, bool has_members)>;
  void SetListener(Listener listener) { listener_ = std::move(listener); }

  // ResourceExhausted: groups or members of this group are at their limit.
  absl::StatusOr<Membership> Join(const roce::Gid& group);

  std::vector<roce::Gid> Groups() const;
  uint32_t groups() const { return static_cast<uint32_t>(members_.size()); }
  uint32_t memberships() const { return total_; }

 private:
  struct Less {
    bool operator()(const roce::Gid& a, const roce::Gid& b) const { return a.bytes < b.bytes; }
  };
  std::map<roce::Gid, uint32_t, Less> members_;
  uint32_t total_ = 0;
  Listener listener_;
};

}  // namespace roci::control
