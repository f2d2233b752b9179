// Storage for a queue pair's responder resources (READs and atomics of its peer), packed densely.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "roce/responder.h"

namespace roci::dataplane {

// The destructor returns the storage. It costs no memory before it is touched.
class ResourceStorage {
 public:
  ResourceStorage() = default;
  // `count` is a power of two, 1..256. An empty object if address space is short.
  static ResourceStorage Allocate(uint32_t count);
  ResourceStorage(ResourceStorage&& other) noexcept { *this = std::move(other); }
  ResourceStorage& operator=(ResourceStorage&& other) noexcept;
  ~ResourceStorage() { GiveBack(); }

  explicit operator bool() const { return data_ != nullptr; }
  std::span<roce::ResponderResource> span() const { return {data_, count_}; }

 private:
  void GiveBack();
  roce::ResponderResource* data_ = nullptr;
  uint32_t count_ = 0;
};

}  // namespace roci::dataplane
