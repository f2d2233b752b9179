#include "dataplane/rings/tag_list.h"

#include <cassert>

namespace roci::dataplane {

TagList::TagList(uint32_t max_tags)
    : links_(max_tags), buffers_(max_tags), states_(max_tags, State::kFree) {}

bool TagList::Add(const TaggedBuffer& buffer) {
  const uint32_t slot = buffer.slot();
  if (slot >= states_.size() || states_[slot] != State::kFree) return false;
  buffers_[slot] = buffer;
  states_[slot] = State::kListed;
  links_[slot] = {buffer.tag, buffer.mask, kNone, last_};
  (last_ == kNone ? first_ : links_[last_].next) = slot;
  last_ = slot;
  if (waiting_ == kNone && !in_sync()) waiting_ = slot;
  ++size_;
  return true;
}

bool TagList::Remove(uint32_t handle) {
  const uint32_t slot = TaggedBuffer::SlotOf(handle);
  if (slot >= states_.size() || states_[slot] != State::kListed ||
      buffers_[slot].handle != handle) {
    return false;
  }
  Unlink(slot);
  states_[slot] = State::kFree;
  return true;
}

void TagList::Unlink(uint32_t slot) {
  const Link& link = links_[slot];
  if (waiting_ == slot) waiting_ = link.next;
  (link.previous == kNone ? first_ : links_[link.previous].next) = link.next;
  (link.next == kNone ? last_ : links_[link.next].previous) = link.previous;
  --size_;
}

const TaggedBuffer* TagList::Match(uint64_t tag) {
  for (uint32_t slot = first_; slot != waiting_; slot = links_[slot].next) {
    const Link& link = links_[slot];
    if ((tag & link.mask) != link.tag) continue;
    Unlink(slot);
    states_[slot] = State::kMatched;
    return &buffers_[slot];
  }
  return nullptr;
}

void TagList::Release(uint32_t slot) {
  assert(states_[slot] == State::kMatched);
  states_[slot] = State::kFree;
}

void TagList::Sync(uint32_t count) {
  handled_ = count;
  if (in_sync()) waiting_ = kNone;
}

}  // namespace roci::dataplane
