// The address handles of one verbs context: small numbers that name prepared frame templates.
#pragma once

#include <cstdint>
#include <vector>

#include "roce/frame.h"

namespace roci::dataplane {

// Read and changed on the context's lcore.
class AddressHandles {
 public:
  explicit AddressHandles(uint32_t capacity) : capacity_(capacity) {}

  // Null: no such handle, or it belongs to another protection domain.
  const roce::FrameTemplate* Find(uint32_t handle, uint32_t pd) const {
    if (handle >= entries_.size()) return nullptr;
    const Entry& entry = entries_[handle];
    return entry.used && entry.pd == pd ? &entry.frame : nullptr;
  }
  // False: full.
  bool Add(uint32_t pd, const roce::Path& path, uint32_t* handle);
  // False: no such handle.
  bool Remove(uint32_t handle);
  uint32_t size() const { return used_; }

 private:
  struct Entry {
    roce::FrameTemplate frame;
    uint32_t pd = 0;
    uint32_t next_free = 0;
    bool used = false;
  };
  static constexpr uint32_t kNone = ~0u;

  uint32_t capacity_;
  uint32_t used_ = 0;
  uint32_t free_head_ = kNone;
  std::vector<Entry> entries_;
};

}  // namespace roci::dataplane
