// Timers of many queue pairs: an intrusive hashed timer wheel, O(1) to set and to move. Setting a
// later time is optional: the owner may leave the node and set it again when it expires.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "memory/intrusive_list.h"

namespace roci::dataplane {

// Embedded in the owner; must be removed from its wheel before it is destroyed.
struct TimerNode {
  memory::ListLink<TimerNode> link;  // in its slot
  uint64_t expiry_ns = kNever;       // when it expires, at most one tick late
  static constexpr uint64_t kNever = ~uint64_t{0};
  bool armed() const { return link.is_linked(); }
};

// Times beyond the horizon are kept in the last slot and expire too early; the owner sets them
// again. One thread. Times are in ns of the caller's clock.
class TimerWheel {
 public:
  static constexpr uint32_t kTickBits = 13;  // 8.192 us
  static constexpr uint32_t kSlots = 8192;   // horizon 67 ms
  static constexpr uint64_t kTickNs = uint64_t{1} << kTickBits;

  explicit TimerWheel(uint64_t now_ns) : tick_(now_ns >> kTickBits) {}
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  // Inserts or moves `node`, so that it expires at or after min(expiry_ns, horizon). A time in the
  // past expires at the next tick.
  void Set(TimerNode& node, uint64_t expiry_ns);
  void Cancel(TimerNode& node);

  bool DueTick(uint64_t now_ns) const { return (now_ns >> kTickBits) > tick_; }

  // Removes the nodes that have expired by `now_ns`, at most `budget`, and calls expire(node) for
  // each, which may set the node again. Returns their number. The next call continues.
  template <class Expire>
  uint32_t Advance(uint64_t now_ns, uint32_t budget, Expire&& expire);

  // Removes nodes whose owners wait for a later time by now, or for none, and sets them to it;
  // until the first expiry is one that its owner waits for. time_of(node) is that time, or kNever.
  template <class TimeOf>
  void SkipEarly(TimeOf&& time_of);

  // A time not later than the first expiry; TimerNode::kNever if the wheel is empty.
  uint64_t NextExpiry() const;
  uint32_t size() const { return size_; }

 private:
  static constexpr uint32_t kMask = kSlots - 1;
  static constexpr uint32_t kWordBits = 64;  // of occupied_

  static memory::ListLink<TimerNode>& LinkOf(TimerNode& node) { return node.link; }
  using Slot = memory::IntrusiveList<TimerNode, LinkOf>;

  // The tick at which a node with this time expires: never early, except at the horizon.
  uint64_t TickOf(uint64_t expiry_ns) const;
  void Unlink(TimerNode& node);
  // First occupied slot at or after tick `from`, as a tick; `from` + kSlots if none.
  uint64_t FirstOccupied(uint64_t from) const;

  uint64_t tick_;  // every slot up to and including this one is empty or being emptied
  uint32_t size_ = 0;
  std::array<uint64_t, kSlots / kWordBits> occupied_{};
  std::array<Slot, kSlots> slots_;
};

template <class Expire>
uint32_t TimerWheel::Advance(uint64_t now_ns, uint32_t budget, Expire&& expire) {
  const uint64_t target = now_ns >> kTickBits;
  uint32_t expired = 0;
  while (tick_ < target) {
    const uint64_t next = size_ == 0 ? target + 1 : FirstOccupied(tick_ + 1);
    if (next > target) {
      tick_ = target;
      break;
    }
    // expire(node) sees tick_ at this slot, so a node that it sets again goes to a later slot.
    while (TimerNode* node = slots_[next & kMask].first()) {
      if (expired == budget) return expired;
      Unlink(*node);
      ++expired;
      tick_ = next;
      expire(*node);
      tick_ = next - 1;
    }
    tick_ = next;
  }
  return expired;
}

template <class TimeOf>
void TimerWheel::SkipEarly(TimeOf&& time_of) {
  while (size_ != 0) {
    const uint64_t tick = FirstOccupied(tick_ + 1);
    for (TimerNode* node = slots_[tick & kMask].first(); node != nullptr;) {
      TimerNode* const next = Slot::Next(*node);
      const uint64_t expiry_ns = time_of(*node);
      if (expiry_ns != TimerNode::kNever && TickOf(expiry_ns) <= tick) return;
      Unlink(*node);
      if (expiry_ns != TimerNode::kNever) Set(*node, expiry_ns);
      node = next;
    }
  }
}

}  // namespace roci::dataplane
