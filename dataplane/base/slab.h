// Storage for many objects of one size, packed densely, so that thousands of queue pairs need few
// pages and few TLB entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace roci::dataplane {

// Maps and unmaps chunks of 2 MiB. Any thread.
class Slab {
 public:
  // `huge`: chunks are transparent huge pages, for objects that are used as a whole. Otherwise
  // pages cost no memory before they are touched.
  Slab(size_t object_bytes, bool huge);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // Aligned to a cache line, with undefined contents. Null: address space is short.
  void* Take();
  void Give(void* object);
  size_t chunks() const;

  static constexpr size_t kChunkBytes = size_t{2} << 20;

 private:
  using Chunk = std::vector<uint32_t>;  // numbers of the free objects
  std::byte* AddChunk();

  const size_t object_bytes_;
  const bool huge_;
  mutable std::mutex mutex_;
  std::map<std::byte*, Chunk> chunks_;
  std::set<std::byte*> open_;  // chunks with a free object
};

}  // namespace roci::dataplane
