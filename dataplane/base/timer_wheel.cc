#include "dataplane/base/timer_wheel.h"

#include <algorithm>

namespace roci::dataplane {

uint64_t TimerWheel::TickOf(uint64_t expiry_ns) const {
  const uint64_t last = tick_ + kSlots - 1;
  const uint64_t wanted =
      expiry_ns > last << kTickBits ? last : (expiry_ns + kTickNs - 1) >> kTickBits;
  return std::max(wanted, tick_ + 1);
}

void TimerWheel::Set(TimerNode& node, uint64_t expiry_ns) {
  if (node.armed()) Unlink(node);
  const uint64_t tick = TickOf(expiry_ns);
  node.expiry_ns = tick << kTickBits;
  slots_[tick & kMask].PushFront(node);
  occupied_[(tick & kMask) / kWordBits] |= uint64_t{1} << (tick % kWordBits);
  ++size_;
}

void TimerWheel::Cancel(TimerNode& node) {
  if (node.armed()) Unlink(node);
}

void TimerWheel::Unlink(TimerNode& node) {
  const bool was_last = Slot::Next(node) == nullptr;
  Slot::Remove(node);
  if (was_last) {
    const uint64_t slot = (node.expiry_ns >> kTickBits) & kMask;
    if (slots_[slot].empty()) occupied_[slot / kWordBits] &= ~(uint64_t{1} << (slot % kWordBits));
  }
  node.expiry_ns = TimerNode::kNever;
  --size_;
}

uint64_t TimerWheel::FirstOccupied(uint64_t from) const {
  constexpr uint32_t kWords = kSlots / kWordBits;
  const auto first = static_cast<uint32_t>(from & kMask);
  uint64_t bits = occupied_[first / kWordBits] & (~uint64_t{0} << (first % kWordBits));
  for (uint32_t i = 0; i <= kWords; ++i) {
    const uint32_t word = (first / kWordBits + i) % kWords;
    if (i > 0) bits = occupied_[word];
    if (bits != 0) {
      const uint32_t slot = word * kWordBits + static_cast<uint32_t>(std::countr_zero(bits));
      return from + ((slot - first) & kMask);
    }
  }
  return from + kSlots;
}

uint64_t TimerWheel::NextExpiry() const {
  return size_ == 0 ? TimerNode::kNever : FirstOccupied(tick_ + 1) << kTickBits;
}

}  // namespace roci::dataplane
