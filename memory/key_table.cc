// Registration of regions, and the slow paths of translation.
#include "memory/key_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "memory/app_memory.h"
#include "memory/key_table_region.h"
#include "memory/split_mix.h"

namespace roci::memory {
namespace {

// Buffers of null regions: one is only written, the other only read. All sessions share them, since
// written bytes are never read.
constexpr uint32_t kNullBackingSize = 64 * 1024;
alignas(64) constinit std::byte g_null_sink[kNullBackingSize];
alignas(64) constinit std::byte g_null_zeros[kNullBackingSize];

bool Wraps(uint64_t start, uint64_t length) { return length != 0 && start + (length - 1) < start; }

bool ContainsRange(uint64_t offset, uint64_t length, uint64_t limit) {
  return offset <= limit && length <= limit - offset;
}

// IBTA vol 1, 10.6.3.1: remote write and remote atomic need local write.
bool AccessConsistent(Access access) {
  const bool remote_change =
      (access & (Access::kRemoteWrite | Access::kRemoteAtomic)) != Access::kNone;
  return (static_cast<uint32_t>(access) & ~kAccessMask) == 0 &&
         (!remote_change || Includes(access, Access::kLocalWrite));
}

bool ExtentsCover(const Translation& translation) {
  if (translation.extents.empty()) return true;
  uint64_t covered = 0;
  for (const Extent& extent : translation.extents) {
    if (extent.length == 0 || extent.va != translation.va + covered ||
        !ContainsRange(covered, extent.length, translation.length)) {
      return false;
    }
    if (extent.mapping != nullptr && !extent.mapping->Covers(extent.file_offset, extent.length)) {
      return false;
    }
    covered += extent.length;
  }
  return covered == translation.length;
}

// A writable region needs writable mappings.
bool MappingsAllow(const Translation& translation, Access access) {
  return !Includes(access, Access::kLocalWrite) ||
         std::all_of(translation.extents.begin(), translation.extents.end(),
                     [](const Extent& e) { return e.mapping == nullptr || e.mapping->writable(); });
}

// A region with kFlushPersistent must lie in durable files that the daemon maps.
bool DurableIfAsked(const Translation& translation, Access access) {
  return !Includes(access, Access::kFlushPersistent) || translation.length == 0 ||
         (!translation.extents.empty() && translation.extents.size() <= DurableRange::kMaxParts &&
          std::all_of(translation.extents.begin(), translation.extents.end(),
                      [](const Extent& e) { return e.mapping && e.mapping->durable(); }));
}

bool RightsFit(const Translation& translation, Access access) {
  return MappingsAllow(translation, access) && DurableIfAsked(translation, access);
}

bool TranslationValid(const Translation& translation) {
  return !Wraps(translation.va, translation.length) &&
         !Wraps(translation.iova, translation.length) && ExtentsCover(translation);
}

bool Broken(const MappedFile& mapping) {
  return mapping.broken() != nullptr && mapping.broken()->load(std::memory_order_relaxed);
}

bool Overlaps(uint64_t a, uint64_t a_length, uint64_t b, uint64_t b_length) {
  return a_length != 0 && b_length != 0 && a <= b + (b_length - 1) && b <= a + (a_length - 1);
}

void Release(std::vector<Extent>& extents, ReleasedMappings* released) {
  for (Extent& extent : extents) {
    if (extent.mapping != nullptr) released->push_back(std::move(extent.mapping));
  }
  extents.clear();
}

// Indices end below 2^24.
uint32_t BaseOf(uint64_t seed, uint32_t capacity) {
  return seed == 0 ? 0 : static_cast<uint32_t>(SplitMix(seed).Next() % ((1U << 24) - capacity));
}

}  // namespace

// Whether lcores access the mapping directly. False for a file on a disk: a page fault would wait
// for the disk.
bool KeyTable::IsDirect(const Extent& extent) const {
  return extent.mapping != nullptr && !extent.mapping->on_disk() && !Broken(*extent.mapping) &&
         (!is_direct_stopped_ || extent.mapping->is_dma_buffer());
}

uint8_t KeyTable::FirstVariant(uint32_t slot) const {
  return seed_ == 0 ? 0 : static_cast<uint8_t>(SplitMix(seed_ + slot).Next());
}

KeyTable::KeyTable(const AppMemory* app, uint32_t capacity, uint64_t seed)
    : app_(app), capacity_(capacity), base_(BaseOf(seed, capacity)), seed_(seed) {
  assert(capacity >= 1 && capacity < (1U << 24));
  // Slots run from 1 to capacity.
  chunks_ = std::make_unique<std::unique_ptr<Entry[]>[]>((capacity >> kChunkBits) + 1);
  // Slot 0 is never used, but lookups read it.
  chunks_[0] = std::make_unique<Entry[]>(kChunkSize);
}

KeyTable::~KeyTable() {
  for (uint32_t slot = 1; slot < next_slot_; ++slot) delete At(slot).region;
}

bool KeyTable::FreeSome(uint32_t most) {
  for (; most != 0 && next_slot_ > 1; --most) delete At(--next_slot_).region;
  return next_slot_ > 1;
}

KeyTable::Entry* KeyTable::Allocate() {
  if (used_ == capacity_) return nullptr;
  // New slots first, then the slot that was freed first.
  uint32_t slot = next_slot_;
  if (slot <= capacity_) {
    auto& chunk = chunks_[slot >> kChunkBits];
    if (chunk == nullptr) chunk = std::make_unique<Entry[]>(kChunkSize);
    ++next_slot_;
    At(slot).variant = FirstVariant(slot);
  } else {
    slot = free_head_;
  }
  Entry* entry = &At(slot);
  if (slot == free_head_) {
    free_head_ = entry->next_free;
    if (free_head_ == 0) free_tail_ = 0;
  }
  ++used_;
  ++entry->variant;
  entry->key = ((slot + base_) << kKeyVariantBits) | entry->variant;
  return entry;
}

void KeyTable::Free(Entry* entry) {
  const uint32_t slot = IndexOfKey(entry->key) - base_;
  delete entry->region;
  const uint8_t variant = entry->variant;
  *entry = Entry{};
  entry->variant = variant;
  if (free_tail_ == 0) {
    free_head_ = slot;
  } else {
    At(free_tail_).next_free = slot;
  }
  free_tail_ = slot;
  --used_;
}

void KeyTable::RefreshFastPath(Entry* entry) const {
  entry->direct = nullptr;
  entry->broken = nullptr;
  if (entry->kind != Kind::kRegion || entry->region->extents.size() != 1) return;
  const Extent& extent = entry->region->extents.front();
  if (extent.mapping == nullptr || extent.mapping->on_disk()) return;
  if (is_direct_stopped_ && !extent.mapping->is_dma_buffer()) return;
  entry->direct = extent.mapping->At(extent.file_offset);
  entry->broken = extent.mapping->broken();
}

MemoryStatus KeyTable::Register(uint32_t pd, Access access, Translation translation,
                                uint32_t* key) {
  if (!AccessConsistent(access) || !TranslationValid(translation) ||
      !RightsFit(translation, access)) {
    return MemoryStatus::kInvalidArgument;
  }
  auto region = std::make_unique<Region>();  // may throw: before Allocate()
  Entry* entry = Allocate();
  if (entry == nullptr) return MemoryStatus::kTableFull;
  entry->kind = Kind::kRegion;
  entry->pd = pd;
  entry->access = access;
  entry->iova = translation.iova;
  entry->length = translation.length;
  entry->region = region.release();
  entry->region->app = translation.app != nullptr ? translation.app : app_;
  entry->region->va = translation.va;
  entry->region->extents = std::move(translation.extents);
  RefreshFastPath(entry);
  *key = entry->key;
  return MemoryStatus::kOk;
}

MemoryStatus KeyTable::RegisterNull(uint32_t pd, uint32_t* key) {
  Entry* entry = Allocate();
  if (entry == nullptr) return MemoryStatus::kTableFull;
  entry->kind = Kind::kNull;
  entry->pd = pd;
  entry->access = Access::kLocalWrite;
  entry->iova = 0;
  entry->length = UINT64_MAX;
  *key = entry->key;
  return MemoryStatus::kOk;
}

MemoryStatus KeyTable::Deregister(uint32_t key, ReleasedMappings* released) {
  Entry* entry = Find(key);
  if (entry == nullptr || IsWindow(*entry) || entry->kind == Kind::kList) {
    return MemoryStatus::kBadKey;
  }
  if (entry->region != nullptr) {
    if (entry->region->windows != nullptr) return MemoryStatus::kInUse;
    Release(entry->region->extents, released);
  }
  Free(entry);
  return MemoryStatus::kOk;
}

MemoryStatus KeyTable::Drop(uint32_t key, ReleasedMappings* released, uint32_t* budget) {
  Entry* entry = Find(key);
  if (entry == nullptr) return MemoryStatus::kBadKey;
  if (IsWindow(*entry)) return DeallocateWindow(IndexOfKey(key));
  if (entry->kind == Kind::kList) return FreeList(IndexOfKey(key));
  if (entry->region != nullptr) {
    entry->access = entry->access & ~Access::kWindowBind;
    for (; entry->region->windows != nullptr; Unbind(entry->region->windows)) {
      if (budget == nullptr) continue;
      if (*budget == 0) return MemoryStatus::kInUse;
      --*budget;
    }
  }
  return Deregister(key, released);
}

MemoryStatus KeyTable::Reregister(uint32_t key, RegionChange change, ReleasedMappings* released) {
  Entry* entry = Find(key);
  if (entry == nullptr || IsWindow(*entry) || entry->kind == Kind::kList) {
    return MemoryStatus::kBadKey;
  }
  if (entry->kind != Kind::kRegion) return MemoryStatus::kInvalidArgument;
  if (entry->region->windows != nullptr) return MemoryStatus::kInUse;
  const Access access = change.access.value_or(entry->access);
  if (!AccessConsistent(access) ||
      (change.translation &&
       (!TranslationValid(*change.translation) || !RightsFit(*change.translation, access)))) {
    return MemoryStatus::kInvalidArgument;
  }
  // kFlushPersistent needs a check of the memory, which comes only with a new translation.
  if (!change.translation && Includes(access & ~entry->access, Access::kFlushPersistent)) {
    return MemoryStatus::kInvalidArgument;
  }
  entry->pd = change.pd.value_or(entry->pd);
  entry->access = access;
  if (change.translation) {
    Release(entry->region->extents, released);
    entry->iova = change.translation->iova;
    entry->length = change.translation->length;
    if (change.translation->app != nullptr) entry->region->app = change.translation->app;
    entry->region->va = change.translation->va;
    entry->region->extents = std::move(change.translation->extents);
  } else if (Includes(access, Access::kLocalWrite)) {
    // Write access without a new translation: read-only mappings are replaced by system calls.
    for (Extent& extent : entry->region->extents) {
      if (extent.mapping != nullptr && !extent.mapping->writable()) {
        released->push_back(std::move(extent.mapping));
      }
    }
  }
  RefreshFastPath(entry);
  return MemoryStatus::kOk;
}

uint32_t KeyTable::UseProcessVm(uint64_t va, uint64_t length, ReleasedMappings* released,
                                const AppMemory* app, uint32_t first, uint32_t count) {
  if (app == nullptr) app = app_;
  // A range that wraps is cut at the top of the address space.
  if (Wraps(va, length)) length = UINT64_MAX - va + 1;
  const uint32_t end = EndOf(first, count);
  for (uint32_t slot = first; slot < end; ++slot) {
    Entry* entry = &At(slot);
    if (entry->kind != Kind::kRegion || entry->region->app != app) continue;
    for (Extent& extent : entry->region->extents) {
      if (extent.mapping != nullptr && Overlaps(extent.va, extent.length, va, length)) {
        released->push_back(std::move(extent.mapping));
      }
    }
    RefreshFastPath(entry);
  }
  return end < next_slot_ ? end : 0;
}

uint32_t KeyTable::StopDirectAccess(uint32_t most) {
  is_direct_stopped_ = true;
  const uint32_t first = next_stopped_;
  const uint32_t end = EndOf(first, most);
  for (; next_stopped_ < end; ++next_stopped_) {
    Entry* entry = &At(next_stopped_);
    if (entry->kind == Kind::kRegion) RefreshFastPath(entry);
  }
  return end - first;
}

MemoryStatus KeyTable::CheckEntry(const Entry& entry, const AccessContext& context,
                                  uint64_t address, uint64_t length, Access need) {
  if (IsWindow(entry)) {
    const MemoryStatus status = CheckWindow(entry, context, need);
    if (status != MemoryStatus::kOk) return status;
  }
  if (entry.kind == Kind::kList && !entry.region->is_valid) return MemoryStatus::kBadKey;
  if (entry.pd != context.pd) return MemoryStatus::kWrongPd;
  if (!Includes(entry.access, need)) return MemoryStatus::kNoPermission;
  // An address below iova gives a huge offset; registration has checked that iova + length does not
  // wrap.
  if (!ContainsRange(address - entry.iova, length, entry.length)) return MemoryStatus::kOutOfBounds;
  return MemoryStatus::kOk;
}

MemoryStatus KeyTable::Check(uint32_t key, const AccessContext& context, uint64_t address,
                             uint64_t length, Access need) const {
  const Entry* entry = Find(key);
  if (entry == nullptr) return MemoryStatus::kBadKey;
  return CheckEntry(*entry, context, address, length, need);
}

MemoryStatus KeyTable::CheckKey(uint32_t key, const AccessContext& context, Access need) const {
  const Entry* entry = Find(key);
  if (entry == nullptr) return MemoryStatus::kBadKey;
  return CheckEntry(*entry, context, entry->iova, 0, need);
}

MemoryStatus KeyTable::ResolveSlow(const Entry& entry, const AccessContext& context,
                                   uint64_t address, uint32_t length, Access need,
                                   SegmentList& out) const {
  const MemoryStatus status = CheckEntry(entry, context, address, length, need);
  if (status != MemoryStatus::kOk || length == 0) return status;
  const uint32_t size_before = out.size();
  MemoryStatus appended = MemoryStatus::kOk;
  if (entry.kind == Kind::kNull) {
    appended = AppendNull(need, length, out);
  } else if (entry.kind == Kind::kList) {
    appended = AppendList(entry, address - entry.iova, length, need, out);
  } else {
    uint64_t offset = address - entry.iova;
    const Region* region = entry.region;
    if (IsWindow(entry)) {
      offset += region->offset;
      region = region->parent->region;
    }
    appended = AppendExtents(*region, region->va + offset, length, out);
  }
  if (appended != MemoryStatus::kOk) out.Truncate(size_before);
  return appended;
}

MemoryStatus KeyTable::AppendNull(Access need, uint32_t length, SegmentList& out) {
  std::byte* backing = need == Access::kNone ? g_null_zeros : g_null_sink;
  while (length > 0) {
    const uint32_t piece = std::min(length, kNullBackingSize);
    if (!out.Append(Segment::Direct(backing, piece, nullptr))) {
      return MemoryStatus::kTooManySegments;
    }
    length -= piece;
  }
  return MemoryStatus::kOk;
}

Segment KeyTable::SegmentOf(const Region& region, const Extent& extent, uint64_t skip,
                            uint32_t length) const {
  const MappedFile* mapping = extent.mapping.get();
  if (IsDirect(extent)) {
    return Segment::Direct(mapping->At(extent.file_offset) + skip, length, mapping->broken());
  }
  const bool is_mapped =
      mapping != nullptr && (mapping->on_disk() || (is_direct_stopped_ && !Broken(*mapping)));
  const AppMemory* own = is_mapped ? AppMemory::OwnProcess() : nullptr;
  if (own == nullptr) return Segment::Remote(region.app, extent.va + skip, length);
  const auto at = reinterpret_cast<uintptr_t>(mapping->At(extent.file_offset));
  return Segment::Remote(own, at + skip, length);
}

MemoryStatus KeyTable::AppendExtents(const Region& region, uint64_t va, uint32_t length,
                                     SegmentList& out) const {
  if (region.extents.empty()) {
    return out.Append(Segment::Remote(region.app, va, length)) ? MemoryStatus::kOk
                                                               : MemoryStatus::kTooManySegments;
  }
  // The last extent that begins at or before va.
  auto extent = std::upper_bound(region.extents.begin(), region.extents.end(), va,
                                 [](uint64_t at, const Extent& e) { return at < e.va; }) -
                1;
  while (length > 0) {
    const uint64_t skip = va - extent->va;
    const auto piece = static_cast<uint32_t>(std::min<uint64_t>(length, extent->length - skip));
    if (!out.Append(SegmentOf(region, *extent, skip, piece))) return MemoryStatus::kTooManySegments;
    va += piece;
    length -= piece;
    ++extent;
  }
  return MemoryStatus::kOk;
}

RegionInfo KeyTable::Describe(const Entry& entry) const {
  RegionInfo info{};
  info.key = entry.key;
  info.pd = entry.pd;
  info.access = entry.access;
  info.null_region = entry.kind == Kind::kNull;
  info.window = IsWindow(entry);
  info.list = entry.kind == Kind::kList;
  info.iova = entry.iova;
  info.length = entry.length;
  if (entry.region == nullptr) return info;
  info.va = entry.region->va;
  info.extents = static_cast<uint32_t>(entry.region->extents.size());
  for (const Extent& extent : entry.region->extents) {
    if (IsDirect(extent)) info.direct_length += extent.length;
  }
  return info;
}

std::optional<RegionInfo> KeyTable::Info(uint32_t key) const {
  const Entry* entry = Find(key);
  return entry == nullptr ? std::nullopt : std::optional(Describe(*entry));
}

uint32_t KeyTable::EndOf(uint32_t first, uint32_t count) const {
  return next_slot_ - std::min(first, next_slot_) > count ? first + count : next_slot_;
}

uint32_t KeyTable::ForEach(const std::function<void(const RegionInfo&)>& visit, uint32_t first,
                           uint32_t count) const {
  const uint32_t end = EndOf(first, count);
  for (uint32_t slot = first; slot < end; ++slot) {
    const Entry& entry = At(slot);
    if (entry.key != 0) visit(Describe(entry));
  }
  return end < next_slot_ ? end : 0;
}

}  // namespace roci::memory
