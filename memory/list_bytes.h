// Copies the bytes of a list region run by run, for ranges with more runs than a SegmentList takes.
#pragma once

#include <cstdint>
#include <span>

#include "memory/key_table.h"
#include "memory/types.h"

namespace roci::memory {

class ListBytes {
 public:
  /// `keys` and `list` outlive the object.
  ListBytes(const KeyTable* keys, const KeyTable::Entry* list) : keys_(keys), list_(list) {}

  /// Reads or writes [offset, offset + bytes.size()), which must lie within the list. Returns the
  /// results of KeyTable::Resolve and of copying.
  MemoryStatus CopyOut(uint64_t offset, std::span<std::byte> bytes) const;
  MemoryStatus CopyIn(uint64_t offset, std::span<const std::byte> bytes) const;

 private:
  const KeyTable* keys_;
  const KeyTable::Entry* list_;
};

}  // namespace roci::memory
