// Storage for many objects of one size, packed densely: thousands of queue pairs on few pages (and
// few entries of the processor's address translation cache).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace roci::dataplane {

// Takes and gives back chunks of 2 MiB. Any thread.
class Slab {
 public:
  // `huge`: chunks are better one huge page, since all of an object is touched; otherwise an
  // object's pages are zero and cost nothing until they are touched for the first time.
  Slab(size_t object_bytes, bool huge);
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // Aligned to a cache line; contents are not defined. Null where there is no address space.
  void* Take();
  void Give(void* object);
  size_t chunks() const;

  static constexpr size_t kChunkBytes = size_t{2} << 20;

 private:
  using Chunk = std::vector<uint32_t>;  // objects that are free, by number
  std::byte* AddChunk();

  const size_t object_bytes_;
  const bool huge_;
  mutable std::mutex mutex_;
  std::map<std::byte*, Chunk> chunks_;
  std::set<std::byte*> open_;  // those with something free
};

}  // namespace roci::dataplane
