// Finds the files that must be synced to make a range of a region durable.
#include <algorithm>

#include "memory/key_table.h"
#include "memory/key_table_region.h"

namespace roci::memory {

bool DurableRange::Sync() {
  bool ok = true;
  for (uint32_t i = 0; i < count; ++i) {
    Part& part = parts[i];
    ok = ok && part.mapping->Sync(part.file_offset, part.length) == 0;
    part.mapping.reset();
  }
  count = 0;
  return ok;
}

MemoryStatus KeyTable::FindDurable(uint32_t key, const AccessContext& context, uint64_t address,
                                   uint32_t length, bool whole_region, DurableRange* out) const {
  out->count = 0;
  const Entry* entry = Find(key);
  if (entry == nullptr) return MemoryStatus::kBadKey;
  const uint64_t first = whole_region ? entry->iova : address;
  const uint64_t bytes = whole_region ? entry->length : length;
  const MemoryStatus status = CheckEntry(*entry, context, first, bytes, Access::kFlushPersistent);
  if (status != MemoryStatus::kOk) return status;
  uint64_t offset = first - entry->iova;
  const Region* region = entry->region;
  if (IsWindow(*entry)) {
    offset += region->offset;
    region = region->parent->region;
  }
  for (const Extent& extent : region->extents) {
    const uint64_t extent_begin = extent.va - region->va;
    const uint64_t from = std::max(offset, extent_begin);
    const uint64_t to = std::min(offset + bytes, extent_begin + extent.length);
    if (from >= to) continue;
    if (extent.mapping == nullptr || out->count == DurableRange::kMaxParts) {
      for (uint32_t i = 0; i < out->count; ++i) out->parts[i].mapping.reset();
      out->count = 0;
      return MemoryStatus::kFault;
    }
    out->parts[out->count++] = {extent.mapping, extent.file_offset + (from - extent_begin),
                                to - from};
  }
  return MemoryStatus::kOk;
}

}  // namespace roci::memory
