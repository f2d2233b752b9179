#include "dataplane/qp/early_frames.h"

#include <cassert>

namespace roci::dataplane {

EarlyFrames::EarlyFrames() {
  for (uint16_t i = 0; i < kMost; ++i) {
    entries_[i] = {nullptr, roce::Psn(), static_cast<uint16_t>(i + 1)};
  }
}

// The owner has removed its queue pairs, and with them their frames.
EarlyFrames::~EarlyFrames() { assert(free_count_ == kMost); }

// Most come in order, so the place is mostly the end.
void EarlyFrames::Keep(const OnShard&, List& list, bool is_request, roce::Psn due,
                       rte_mbuf* frame) {
  assert(free_count_ != 0);
  const uint16_t entry = free_;
  free_ = entries_[entry].next;
  --free_count_;
  list.of_user->fetch_add(1, std::memory_order_relaxed);
  uint16_t& first = list.first[is_request];
  uint16_t& last = list.last[is_request];
  uint16_t before = last;
  if (before != kNone && roce::Distance(entries_[before].due, due) < 0) {
    before = kNone;
    for (uint16_t i = first; roce::Distance(entries_[i].due, due) >= 0; i = entries_[i].next) {
      before = i;
    }
  }
  uint16_t& link = before == kNone ? first : entries_[before].next;
  entries_[entry] = {frame, due, link};
  link = entry;
  if (before == last) last = entry;
}

std::optional<roce::Psn> EarlyFrames::FirstDue(const OnShard&, const List& list,
                                               bool is_request) const {
  const uint16_t first = list.first[is_request];
  if (first == kNone) return std::nullopt;
  return entries_[first].due;
}

rte_mbuf* EarlyFrames::TakeFirst(const OnShard&, List& list, bool is_request) {
  uint16_t& first = list.first[is_request];
  if (first == kNone) return nullptr;
  const uint16_t entry = first;
  first = entries_[entry].next;
  if (first == kNone) list.last[is_request] = kNone;
  list.of_user->fetch_sub(1, std::memory_order_relaxed);
  entries_[entry].next = free_;
  free_ = entry;
  ++free_count_;
  return entries_[entry].frame;
}

}  // namespace roci::dataplane
