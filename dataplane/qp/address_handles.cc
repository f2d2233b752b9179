#include "dataplane/qp/address_handles.h"

namespace roci::dataplane {

bool AddressHandles::Add(uint32_t pd, const roce::Path& path, uint32_t* handle) {
  if (used_ == capacity_) return false;
  const auto known = static_cast<uint32_t>(entries_.size());
  if (known < capacity_ && known - used_ < kRemovedBeforeReuse) {
    entries_.emplace_back();
    *handle = known;
  } else {
    *handle = first_removed_;
    first_removed_ = entries_[first_removed_].next_removed;
    if (first_removed_ == kNone) last_removed_ = kNone;
  }
  entries_[*handle] = {.frame = roce::FrameTemplate(path), .pd = pd, .used = true};
  ++used_;
  return true;
}

bool AddressHandles::Remove(uint32_t handle) {
  if (handle >= entries_.size() || !entries_[handle].used) return false;
  entries_[handle].used = false;
  entries_[handle].next_removed = kNone;
  (last_removed_ == kNone ? first_removed_ : entries_[last_removed_].next_removed) = handle;
  last_removed_ = handle;
  --used_;
  return true;
}

}  // namespace roci::dataplane
