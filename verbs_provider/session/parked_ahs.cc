#include "verbs_provider/session/parked_ahs.h"

#include <cstring>

namespace roci::provider {
namespace {

bool operator==(const AhKey& a, const AhKey& b) {
  return a.pd == b.pd && memcmp(&a.attr, &b.attr, sizeof(a.attr)) == 0;
}

}  // namespace

// FNV-1a over words.
uint32_t ParkedAhs::SetOf(const AhKey& key) {
  static_assert(sizeof(AhKey) % sizeof(uint32_t) == 0);
  uint32_t words[sizeof(AhKey) / sizeof(uint32_t)];
  memcpy(words, &key, sizeof(key));
  uint64_t hash = 0xCBF29CE484222325u;
  for (const uint32_t word : words) hash = (hash ^ word) * 0x100000001B3u;
  return static_cast<uint32_t>(hash >> 32) % kSets;
}

bool ParkedAhs::Take(const AhKey& key, uint32_t paths, uint32_t* handle) {
  Set& set = sets_[SetOf(key)];
  const SpinGuard guard(lock_);
  for (Entry& entry : set.entries) {
    if (entry.parked.handle == ROCI_ABI_NO_HANDLE || entry.parked.paths != paths ||
        !(entry.key == key)) {
      continue;
    }
    *handle = entry.parked.handle;
    entry.parked.handle = ROCI_ABI_NO_HANDLE;
    return true;
  }
  return false;
}

uint32_t ParkedAhs::Park(const AhKey& key, Parked parked, uint32_t paths) {
  if (paths == 0 || parked.paths != paths) return parked.handle;
  Set& set = sets_[SetOf(key)];
  const SpinGuard guard(lock_);
  Entry* place = nullptr;
  for (Entry& entry : set.entries) {
    const bool is_empty = entry.parked.handle == ROCI_ABI_NO_HANDLE;
    if (is_empty && place == nullptr) place = &entry;
    if (!is_empty && entry.parked.paths != paths) {
      place = &entry;
      break;
    }
  }
  if (place == nullptr) place = &set.entries[set.next++ % kWays];
  const uint32_t replaced = place->parked.handle;
  *place = {key, parked};
  return replaced;
}

uint32_t ParkedAhs::Remove(uint32_t pd) {
  const SpinGuard guard(lock_);
  for (Set& set : sets_) {
    for (Entry& entry : set.entries) {
      const uint32_t handle = entry.parked.handle;
      if (handle == ROCI_ABI_NO_HANDLE) continue;
      if (pd != ROCI_ABI_NO_HANDLE && entry.key.pd != pd) continue;
      entry.parked.handle = ROCI_ABI_NO_HANDLE;
      return handle;
    }
  }
  return ROCI_ABI_NO_HANDLE;
}

}  // namespace roci::provider
