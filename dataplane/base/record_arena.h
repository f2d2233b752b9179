// Address space for records of work in flight: zero pages until touched, and one mapping for all of
// them, so that they cost neither memory nor one of the kernel's mappings before they are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "roce/requester.h"

namespace roci::dataplane {

// A run of whole pages, given back by the destructor. Runs of one class are of one size.
class RecordStorage {
 public:
  static constexpr uint32_t kClasses = 16;  // up to 128 MiB

  RecordStorage() = default;
  // `records` is a power of two. An empty object if the arena is exhausted.
  static RecordStorage Allocate(uint32_t records);
  // What Release gave.
  RecordStorage(roce::SendRecord* records, uint32_t size_class)
      : records_(records), size_class_(size_class) {}
  RecordStorage(RecordStorage&& other) noexcept { *this = std::move(other); }
  RecordStorage& operator=(RecordStorage&& other) noexcept;
  ~RecordStorage() { GiveBack(); }

  explicit operator bool() const { return records_ != nullptr; }
  roce::SendRecord* records() const { return records_; }
  uint32_t size_class() const { return size_class_; }
  // The caller has it from now on.
  roce::SendRecord* Release() { return std::exchange(records_, nullptr); }
  // The run's pages are zero again and cost nothing.
  static void Forget(roce::SendRecord* records, uint32_t size_class);

 private:
  void GiveBack();
  roce::SendRecord* records_ = nullptr;
  uint32_t size_class_ = 0;
};

}  // namespace roci::dataplane
