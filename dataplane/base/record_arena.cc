#include "dataplane/base/record_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>
#include <utility>
#include <vector>

#include "memory/page.h"

namespace roci::dataplane {
namespace {

// Maps address space in chunks, which the kernel merges into one mapping if they are adjacent, and
// cuts them into runs of 2^n pages.
class Arena {
 public:
  static Arena& Instance() {
    static Arena arena;
    return arena;
  }

  std::byte* Take(uint32_t size_class) {
    std::lock_guard lock(mutex_);
    std::vector<std::byte*>& free = free_[size_class];
    if (!free.empty()) {
      std::byte* run = free.back();
      free.pop_back();
      return run;
    }
    return Cut(Bytes(size_class));
  }

  static void Forget(std::byte* run, uint32_t size_class) {
    madvise(run, Bytes(size_class), MADV_DONTNEED);
  }

  void Give(std::byte* run, uint32_t size_class) {
    Forget(run, size_class);
    std::lock_guard lock(mutex_);
    free_[size_class].push_back(run);
  }

  static uint32_t ClassFor(size_t bytes) {
    const size_t pages = (bytes + memory::kPageBytes - 1) / memory::kPageBytes;
    return static_cast<uint32_t>(std::bit_width(std::max<size_t>(pages, 1) - 1));
  }
  static constexpr uint32_t kClasses = RecordStorage::kClasses;

 private:
  static constexpr size_t kChunkBytes = size_t{256} << 20;
  static size_t Bytes(uint32_t size_class) { return memory::kPageBytes << size_class; }

  std::byte* Cut(size_t bytes) {
    if (left_ < bytes) {
      void* chunk = mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (chunk == MAP_FAILED) return nullptr;
      // With huge pages, the first byte that a queue pair touches would cost 2 MiB.
      madvise(chunk, kChunkBytes, MADV_NOHUGEPAGE);
      next_ = static_cast<std::byte*>(chunk);
      left_ = kChunkBytes;
    }
    std::byte* run = next_;
    next_ += bytes;
    left_ -= bytes;
    return run;
  }

  std::mutex mutex_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
  std::array<std::vector<std::byte*>, kClasses> free_;
};

}  // namespace

RecordStorage RecordStorage::Allocate(uint32_t records) {
  const uint32_t size_class = Arena::ClassFor(records * sizeof(roce::SendRecord));
  if (size_class >= kClasses) return RecordStorage();
  return {reinterpret_cast<roce::SendRecord*>(Arena::Instance().Take(size_class)), size_class};
}

RecordStorage& RecordStorage::operator=(RecordStorage&& other) noexcept {
  if (this != &other) {
    GiveBack();
    records_ = other.Release();
    size_class_ = other.size_class_;
  }
  return *this;
}

void RecordStorage::Forget(roce::SendRecord* records, uint32_t size_class) {
  Arena::Forget(reinterpret_cast<std::byte*>(records), size_class);
}

void RecordStorage::GiveBack() {
  if (records_ == nullptr) return;
  Arena::Instance().Give(reinterpret_cast<std::byte*>(Release()), size_class_);
}

}  // namespace roci::dataplane
