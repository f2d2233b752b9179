// The local keys of one session, for the plugin's own use: which memory a post may copy into the
// ring by itself. What is not found here goes to the daemon, which judges and reports.
#pragma once

#include <atomic>
#include <cstdint>

namespace roci::provider {

/// Find is lock-free and used by every post of a small message; Add, Change and Remove come from
/// registration and exclude each other by the caller's lock.
class MrKeys {
 public:
  MrKeys() = default;
  ~MrKeys();
  MrKeys(const MrKeys&) = delete;
  MrKeys& operator=(const MrKeys&) = delete;

  /// `iova` names the byte at `address` for users of the key. False: out of memory; nothing is lost
  /// but the shortcut.
  bool Add(uint32_t key, uint32_t pd, uint64_t iova, uint64_t address, uint64_t length);
  void Remove(uint32_t key);

  /// The app's memory for [va, va + length) by `key`, or null where the key is not known, belongs
  /// to another PD or does not cover the range.
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
  // Keys are an index in the upper 24 bits and a variant that changes with each use of the index.
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
