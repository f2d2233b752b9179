#include "dataplane/qp/address_handles.h"

namespace roci::dataplane {

bool AddressHandles::Add(uint32_t pd, const roce::Path& path, uint32_t* handle) {
  if (used_ == capacity_) return false;
  if (free_head_ == kNone) {
    entries_.emplace_back().next_free = kNone;
    free_head_ = static_cast<uint32_t>(entries_.size()) - 1;
  }
  *handle = free_head_;
  Entry& entry = entries_[free_head_];
  free_head_ = entry.next_free;
  entry.frame = roce::FrameTemplate(path);
  entry.pd = pd;
  entry.used = true;
  ++used_;
  return true;
}

bool AddressHandles::Remove(uint32_t handle) {
  if (handle >= entries_.size() || !entries_[handle].used) return false;
  Entry& entry = entries_[handle];
  entry.used = false;
  entry.next_free = free_head_;
  free_head_ = handle;
  --used_;
  return true;
}

}  // namespace roci::dataplane
