// The bytes of a list region, copied run by run: for a piece with more runs than translation has
// places for.
#pragma once

#include <cstdint>
#include <span>

#include "memory/key_table.h"
#include "memory/types.h"

namespace roci::memory {

class ListBytes {
 public:
  /// Both outlive it.
  ListBytes(const KeyTable* keys, const KeyTable::Entry* list) : keys_(keys), list_(list) {}

  /// Fetches, places [offset, offset + bytes.size()), which lies within the list. Answers what
  /// KeyTable::Resolve and copying answer.
  MemoryStatus CopyOut(uint64_t offset, std::span<std::byte> bytes) const;
  MemoryStatus CopyIn(uint64_t offset, std::span<const std::byte> bytes) const;

 private:
  const KeyTable* keys_;
  const KeyTable::Entry* list_;
};

}  // namespace roci::memory
