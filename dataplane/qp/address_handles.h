// The address handles of one verbs context: small numbers that name prepared frame templates.
//
// Work requests that were posted before an address handle was destroyed still use it: an adapter
// has fetched their address vector by then. So a handle keeps its template until it is reused.
#pragma once

#include <cstdint>
#include <vector>

#include "roce/frame.h"

namespace roci::dataplane {

// Read and changed on the context's lcore.
class AddressHandles {
 public:
  explicit AddressHandles(uint32_t capacity) : capacity_(capacity) {}

  // As many handles are removed before the first of them is reused, except at capacity.
  static constexpr uint32_t kRemovedBeforeReuse = 256;

  // Null: never added, reused, or of another protection domain.
  const roce::FrameTemplate* Find(uint32_t handle, uint32_t pd) const {
    if (handle >= entries_.size()) return nullptr;
    const Entry& entry = entries_[handle];
    return entry.pd == pd ? &entry.frame : nullptr;
  }
  // False: full.
  bool Add(uint32_t pd, const roce::Path& path, uint32_t* handle);
  // False: no such handle.
  bool Remove(uint32_t handle);
  uint32_t size() const { return used_; }

 private:
  static constexpr uint32_t kNone = ~0u;
  struct Entry {
    roce::FrameTemplate frame;
    uint32_t pd = 0;
    uint32_t next_removed = kNone;
    bool used = false;
  };

  uint32_t capacity_;
  uint32_t used_ = 0;
  // The removed entries, in order of removal.
  uint32_t first_removed_ = kNone;
  uint32_t last_removed_ = kNone;
  std::vector<Entry> entries_;
};

}  // namespace roci::dataplane
