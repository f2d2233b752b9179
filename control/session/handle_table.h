// A session's objects of one kind, by the handles that its program uses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace roci::control {

// At most `limit` objects. Handles cycle through 1..last before one is reused, so that stale
// handles are detected. Pointers to an object stay valid until it is removed.
template <class T>
class HandleTable {
 public:
  static constexpr uint32_t kLast = (1u << 24) - 1;

  explicit HandleTable(uint32_t limit, uint32_t last = kLast)
      : limit_(limit < last ? limit : last), last_handle_(last) {}

  absl::StatusOr<uint32_t> Add(T object) {
    const absl::StatusOr<uint32_t> handle = Next();
    if (handle.ok()) Insert(*handle, std::move(object));
    return handle;
  }
  // A free handle for AddAs.
  absl::StatusOr<uint32_t> Next() {
    if (objects_.size() >= limit_) return absl::ResourceExhaustedError("too many objects");
    do {
      last_ = last_ == last_handle_ ? first_ : last_ + 1;
    } while (objects_.contains(last_));
    return last_;
  }
  // Allocates memory for the next Add or AddAs, so that it does not throw. Throws std::bad_alloc.
  void MakeRoom() {
    if (!spare_.empty()) return;
    std::map<uint32_t, T> one;
    one.try_emplace(0);
    spare_ = one.extract(one.begin());
  }
  // Add uses the handles first .. first + count - 1. Call before the first Add.
  void UseRange(uint32_t first, uint32_t count) {
    limit_ = std::min(limit_, count);
    first_ = first;
    last_ = first - 1;
    last_handle_ = first + count - 1;
  }
  // Skips `step` handles, so that tables start with different handles. Call before the first Add.
  void StartBehind(uint64_t step) {
    const uint64_t span = uint64_t{last_handle_} - first_ + 1;
    last_ = first_ - 1 + static_cast<uint32_t>(step % span);
  }
  // Adds an object under a given handle. False: the handle is in use.
  bool AddAs(uint32_t handle, T object) {
    if (objects_.contains(handle)) return false;
    Insert(handle, std::move(object));
    return true;
  }
  T* Find(uint32_t handle) {
    const auto it = objects_.find(handle);
    return it == objects_.end() ? nullptr : &it->second;
  }
  const T* Find(uint32_t handle) const {
    const auto it = objects_.find(handle);
    return it == objects_.end() ? nullptr : &it->second;
  }
  // The first object whose handle is `handle` or more.
  auto From(uint32_t handle) const { return objects_.lower_bound(handle); }
  void Remove(uint32_t handle) { objects_.erase(handle); }
  // Removes at most `most` objects. False: none is left.
  bool RemoveSome(size_t most) {
    for (; most != 0 && !objects_.empty(); --most) objects_.erase(objects_.begin());
    return !objects_.empty();
  }

  size_t size() const { return objects_.size(); }
  auto begin() { return objects_.begin(); }
  auto end() { return objects_.end(); }
  auto begin() const { return objects_.begin(); }
  auto end() const { return objects_.end(); }

 private:
  void Insert(uint32_t handle, T object) {
    MakeRoom();
    spare_.key() = handle;
    std::destroy_at(&spare_.mapped());
    std::construct_at(&spare_.mapped(), std::move(object));
    objects_.insert(std::move(spare_));
  }

  uint32_t limit_;
  uint32_t last_handle_;
  uint32_t first_ = 1;
  uint32_t last_ = 0;
  std::map<uint32_t, T> objects_;
  typename std::map<uint32_t, T>::node_type spare_;
};

}  // namespace roci::control
