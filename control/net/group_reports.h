// Reports a device's IP multicast groups to routers and switches: IGMPv2 (RFC 2236) and MLDv1 (RFC
// 2710), which devices with newer versions also understand. Does no I/O: frames, time and a seed
// are arguments, frames to send go to a callback. Every table is bounded.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "absl/functional/function_ref.h"
#include "control/net/addresses.h"
#include "control/net/neighbour_frames.h"
#include "memory/split_mix.h"
#include "roce/types.h"
#include "roce/work.h"

namespace roci::control {

class GroupReports {
 public:
  using Send = absl::FunctionRef<void(const Frame&)>;

  // Number of reports of a new membership: one may be lost (RFC 2236, 8.1, 8.10; RFC 2710, 7.1).
  static constexpr uint32_t kUnsolicitedReports = 2;
  static constexpr roce::TimeNs kRepeatNs = 10'000'000'000;

  // A reference to a group. Returned by Leave(). Only the holder can release it.
  class Reference {
   public:
    Reference() = default;
    Reference(Reference&& other) noexcept : group_(std::exchange(other.group_, std::nullopt)) {}
    Reference& operator=(Reference&& other) noexcept {
      assert(!group_);
      group_ = std::exchange(other.group_, std::nullopt);
      return *this;
    }
    bool ok() const { return group_.has_value(); }

   private:
    friend class GroupReports;
    explicit Reference(const roce::NetAddress& group) : group_(group) {}
    std::optional<roce::NetAddress> group_;
  };

  // `addresses` outlives this object. `seed`: for random response times. `most`: groups.
  GroupReports(const AddressTable& addresses, uint64_t seed, size_t most)
      : addresses_(addresses), random_(seed), most_(most) {}

  // Adds a reference to `address`, an IPv4-mapped or IPv6 multicast address; the first one joins
  // the group. Check ok() of the result: there may be too many groups.
  Reference Join(roce::TimeNs now, const roce::NetAddress& address, Send send);
  // Removes a reference; the last one leaves the group. No effect if `reference` is not ok().
  void Leave(Reference reference, Send send);

  // Nothing: the frame is neither IGMP nor MLD. Otherwise kHandled or why it was refused.
  std::optional<SlowPathReason> HandleFrame(roce::TimeNs now, std::span<const std::byte> frame);
  void HandleTimeout(roce::TimeNs now, Send send);
  // Absolute; kNever: nothing is to be sent.
  roce::TimeNs NextTimeout() const {
    return timers_.empty() ? roce::kNever : timers_.begin()->first;
  }
  size_t size() const { return groups_.size(); }

 private:
  struct Group {
    uint32_t references = 0;
    uint32_t reports_left = 0;
    roce::TimeNs due = roce::kNever;
  };
  struct Message;

  static std::optional<SlowPathReason> Parse(std::span<const std::byte> frame, Message& out);
  void SetDue(const roce::NetAddress& address, Group& group, roce::TimeNs due);
  void HandleQuery(roce::TimeNs now, const Message& query);
  void AnswerWithin(roce::TimeNs now, const roce::NetAddress& address, Group& group,
                    roce::TimeNs longest);
  void Tell(const roce::NetAddress& group, bool is_member, Send send) const;

  const AddressTable& addresses_;
  memory::SplitMix random_;
  const size_t most_;
  std::map<roce::NetAddress, Group> groups_;
  std::set<std::pair<roce::TimeNs, roce::NetAddress>> timers_;
};

}  // namespace roci::control
