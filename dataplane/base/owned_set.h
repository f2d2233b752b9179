// Owns objects of one kind, in no order.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace roci::dataplane {

// Not thread-safe. Iterates over std::unique_ptr<T>.
template <class T>
class OwnedSet {
 public:
  // Makes sure that the next Add does not allocate, so it cannot fail.
  void MakeRoom() {
    constexpr size_t kFirstCapacity = 8;
    if (objects_.size() == objects_.capacity())
      objects_.reserve(2 * objects_.size() + kFirstCapacity);
  }
  T& Add(std::unique_ptr<T> object) { return *objects_.emplace_back(std::move(object)); }
  // Removes an object, which must be in the set, and hands it to the caller.
  std::unique_ptr<T> Take(const T& object) {
    const auto found = std::find_if(objects_.begin(), objects_.end(),
                                    [&](const auto& owned) { return owned.get() == &object; });
    assert(found != objects_.end());
    std::swap(*found, objects_.back());
    std::unique_ptr<T> taken = std::move(objects_.back());
    objects_.pop_back();
    return taken;
  }

  // Destroys at most `most` objects. False: none is left.
  bool DestroySome(size_t most) {
    for (; most != 0 && !objects_.empty(); --most) objects_.pop_back();
    return !objects_.empty();
  }

  bool empty() const { return objects_.empty(); }
  size_t size() const { return objects_.size(); }
  T* operator[](size_t i) const { return objects_[i].get(); }
  auto begin() const { return objects_.begin(); }
  auto end() const { return objects_.end(); }

 private:
  std::vector<std::unique_ptr<T>> objects_;
};

}  // namespace roci::dataplane
