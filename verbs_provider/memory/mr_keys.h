// The local keys of one session whose memory a post may copy into the ring. The daemon checks
// requests with all other keys.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci::provider {

/// Find is lock-free; every post of a small message calls it. Callers of Add and Remove hold the
/// RegistrationLock.
class MrKeys {
 public:
  MrKeys() = default;
  ~MrKeys();
  MrKeys(const MrKeys&) = delete;
  MrKeys& operator=(const MrKeys&) = delete;

  /// `iova` is the address that work requests use for `address`. False: out of memory; posts then
  /// do not copy this memory.
  bool Add(uint32_t key, uint32_t pd, uint64_t iova, uint64_t address, uint64_t length);
  void Remove(uint32_t key);

  /// The program's memory for [va, va + length) by `key`; null if the key is unknown, belongs to
  /// another PD or does not cover the range.
  const void* Find(uint32_t key, uint32_t pd, uint64_t va, uint32_t length) const {
    const Chunk* chunk = chunks_[key >> (8 + kChunkBits)].load(std::memory_order_acquire);
    if (chunk == nullptr) [[unlikely]] {
      return nullptr;
    }
    const Entry& entry = chunk->entries[(key >> 8) & (kChunkSize - 1)];
    if (entry.key.load(std::memory_order_acquire) != key || entry.pd != pd) [[unlikely]] {
      return nullptr;
    }
    const uint64_t offset = va - entry.iova;
    if (offset > entry.length || length > entry.length - offset) [[unlikely]] {
      return nullptr;
    }
    return reinterpret_cast<const void*>(entry.address + offset);
  }

 private:
  // A key is an index in the upper 24 bits and a variant that changes with each use of the index.
  static constexpr uint32_t kChunkBits = 12;
  static constexpr uint32_t kChunkSize = 1u << kChunkBits;
  static constexpr uint32_t kChunkCount = 1u << (24 - kChunkBits);

  struct Entry {
    std::atomic<uint32_t> key;  // 0: free. Stored last.
    uint32_t pd;
    uint64_t iova;
    uint64_t address;
    uint64_t length;
  };
  struct Chunk {  // calloc'ed: pages without keys take no memory
    Entry entries[kChunkSize];
  };

  std::atomic<Chunk*> chunks_[kChunkCount] = {};
};

}  // namespace roci::provider
