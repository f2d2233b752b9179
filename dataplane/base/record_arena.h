// Address space for the records of work in flight. Pages cost no memory before they are touched,
// and all records share one kernel mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "roce/requester.h"

namespace roci::dataplane {

// A run of whole pages; the destructor returns it. Runs of one class have the same size.
class RecordStorage {
 public:
  static constexpr uint32_t kClasses = 16;  // up to 128 MiB

  RecordStorage() = default;
  // `records` is a power of two. An empty object if the arena is exhausted.
  static RecordStorage Allocate(uint32_t records);
  // Takes over what Release returned.
  RecordStorage(roce::SendRecord* records, uint32_t size_class)
      : records_(records), size_class_(size_class) {}
  RecordStorage(RecordStorage&& other) noexcept { *this = std::move(other); }
  RecordStorage& operator=(RecordStorage&& other) noexcept;
  ~RecordStorage() { GiveBack(); }

  explicit operator bool() const { return records_ != nullptr; }
  roce::SendRecord* records() const { return records_; }
  uint32_t size_class() const { return size_class_; }
  // Passes ownership to the caller.
  roce::SendRecord* Release() { return std::exchange(records_, nullptr); }
  // Frees the memory of the run's pages, which then read as zero.
  static void Forget(roce::SendRecord* records, uint32_t size_class);

 private:
  void GiveBack();
  roce::SendRecord* records_ = nullptr;
  uint32_t size_class_ = 0;
};

}  // namespace roci::dataplane
