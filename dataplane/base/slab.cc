#include "dataplane/base/slab.h"

#include <sys/mman.h>

#include <cassert>
#include <numeric>

#include "dataplane/base/prefetch.h"

namespace roci::dataplane {
namespace {

// Maps a chunk that is aligned to its size, so that ChunkOf can compute it from an object's
// address.
std::byte* MapChunk(bool huge) {
  constexpr size_t kBytes = Slab::kChunkBytes;
  void* area = mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) return nullptr;
  auto* start = static_cast<std::byte*>(area);
  const size_t before = -reinterpret_cast<uintptr_t>(start) & (kBytes - 1);
  if (before != 0) munmap(start, before);
  munmap(start + before + kBytes, kBytes - before);
  madvise(start + before, kBytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  return start + before;
}

std::byte* ChunkOf(const void* object) {
  const auto address = reinterpret_cast<uintptr_t>(object);
  return reinterpret_cast<std::byte*>(address & ~(Slab::kChunkBytes - 1));
}

}  // namespace

Slab::Slab(size_t object_bytes, bool huge)
    : object_bytes_((object_bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes),
      huge_(huge) {
  assert(object_bytes_ <= kChunkBytes);
}

Slab::~Slab() {
  for (const auto& [start, chunk] : chunks_) munmap(start, kChunkBytes);
}

std::byte* Slab::AddChunk() {
  std::byte* start = MapChunk(huge_);
  if (start == nullptr) return nullptr;
  Chunk& free = chunks_[start];
  free.resize(kChunkBytes / object_bytes_);
  std::iota(free.rbegin(), free.rend(), 0u);
  open_.insert(start);
  return start;
}

void* Slab::Take() {
  std::lock_guard lock(mutex_);
  std::byte* start = open_.empty() ? AddChunk() : *open_.begin();
  if (start == nullptr) return nullptr;
  Chunk& free = chunks_[start];
  const uint32_t number = free.back();
  free.pop_back();
  if (free.empty()) open_.erase(start);
  return start + number * object_bytes_;
}

// Keeps one empty chunk: repeatedly creating and destroying one object must not map memory each
// time.
void Slab::Give(void* object) {
  std::lock_guard lock(mutex_);
  std::byte* start = ChunkOf(object);
  Chunk& free = chunks_.at(start);
  free.push_back(static_cast<uint32_t>((static_cast<std::byte*>(object) - start) / object_bytes_));
  open_.insert(start);
  if (free.size() < kChunkBytes / object_bytes_ || open_.size() == 1) return;
  munmap(start, kChunkBytes);
  open_.erase(start);
  chunks_.erase(start);
}

size_t Slab::chunks() const {
  std::lock_guard lock(mutex_);
  return chunks_.size();
}

}  // namespace roci::dataplane
