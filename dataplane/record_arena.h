// Storage for the work in flight of queue pairs: zero pages until touched, and one mapping for all
// of them, so that an idle queue pair costs neither memory nor one of the kernel's mappings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "roce/requester.h"
#include "roce/responder.h"

namespace roci::dataplane {

// A run of whole pages, given back by the destructor.
class RecordStorage {
 public:
  RecordStorage() = default;
  // `records` and `resources` are powers of two. An empty object if the arena is exhausted.
  static RecordStorage Allocate(uint32_t records, uint32_t resources);
  RecordStorage(RecordStorage&& other) noexcept;
  RecordStorage& operator=(RecordStorage&& other) noexcept;
  ~RecordStorage();

  explicit operator bool() const { return data_ != nullptr; }
  std::span<roce::SendRecord> records() const;
  std::span<roce::ResponderResource> resources() const;

 private:
  void Release();
  std::byte* data_ = nullptr;
  uint32_t records_ = 0;
  uint32_t resources_ = 0;
  uint32_t size_class_ = 0;
};

}  // namespace roci::dataplane
