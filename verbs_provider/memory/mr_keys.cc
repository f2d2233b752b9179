// A two-level table of the keys.
#include "verbs_provider/memory/mr_keys.h"

#include <cstdlib>

namespace roci::provider {

MrKeys::~MrKeys() {
  for (std::atomic<Chunk*>& chunk : chunks_) free(chunk.load(std::memory_order_relaxed));
}

bool MrKeys::Add(uint32_t key, uint32_t pd, uint64_t iova, uint64_t address, uint64_t length) {
  std::atomic<Chunk*>& place = chunks_[key >> (8 + kChunkBits)];
  Chunk* chunk = place.load(std::memory_order_relaxed);
  if (chunk == nullptr) {
    chunk = static_cast<Chunk*>(calloc(1, sizeof(Chunk)));
    if (chunk == nullptr) return false;
    place.store(chunk, std::memory_order_release);
  }
  Entry& entry = chunk->entries[(key >> 8) & (kChunkSize - 1)];
  entry.pd = pd;
  entry.iova = iova;
  entry.address = address;
  entry.length = length;
  entry.key.store(key, std::memory_order_release);
  return true;
}

void MrKeys::Remove(uint32_t key) {
  Chunk* chunk = chunks_[key >> (8 + kChunkBits)].load(std::memory_order_relaxed);
  if (chunk == nullptr) return;
  Entry& entry = chunk->entries[(key >> 8) & (kChunkSize - 1)];
  if (entry.key.load(std::memory_order_relaxed) == key) {
    entry.key.store(0, std::memory_order_release);
  }
}

}  // namespace roci::provider
