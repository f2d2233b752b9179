// List regions: keys that name runs of other regions, one behind the other, and are filled and
// taken away by work requests (fast registration, IBTA vol 1, 10.6.5 and 11.4.1.1).
#include <algorithm>
#include <cassert>

#include "memory/key_table.h"
#include "memory/key_table_region.h"

namespace roci::memory {
namespace {

constexpr Access kListRights =
    Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic;
constexpr Access kWriters = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteAtomic;

}  // namespace

KeyTable::Entry* KeyTable::FindList(uint32_t number) {
  const uint32_t slot = number - base_;
  if (slot == 0 || slot >= next_slot_) return nullptr;
  Entry* entry = &At(slot);
  return entry->key != 0 && entry->kind == Kind::kList ? entry : nullptr;
}

MemoryStatus KeyTable::AllocateList(uint32_t pd, uint32_t max_runs, uint32_t* key) {
  Entry* entry = Allocate();
  if (entry == nullptr) return MemoryStatus::kTableFull;
  entry->kind = Kind::kList;
  entry->pd = pd;
  entry->region = new Region;
  // All that a registration will need: it runs on the lcore.
  entry->region->runs.reserve(max_runs);
  entry->region->max_runs = max_runs;
  *key = entry->key;
  return MemoryStatus::kOk;
}

MemoryStatus KeyTable::FreeList(uint32_t number) {
  Entry* entry = FindList(number);
  if (entry == nullptr) return MemoryStatus::kBadKey;
  Free(entry);
  return MemoryStatus::kOk;
}

// The run names an ordinary region of the same domain, lies in it, and may be written if the list
// may be.
MemoryStatus KeyTable::CheckRun(const ListRun& run, uint32_t pd, Access need) const {
  const Entry* region = Find(run.lkey);
  if (region == nullptr || region->kind != Kind::kRegion) return MemoryStatus::kBadKey;
  return CheckEntry(*region, {pd, 0}, run.address, run.length, need);
}

MemoryStatus KeyTable::RegisterList(const ListRegistration& list, const AccessContext& context) {
  Entry* entry = FindList(list.new_key >> 8);
  if (entry == nullptr) return MemoryStatus::kBadKey;
  if (entry->pd != context.pd) return MemoryStatus::kWrongPd;
  if (entry->region->is_valid) return MemoryStatus::kInUse;
  const bool remote_change =
      (list.access & (Access::kRemoteWrite | Access::kRemoteAtomic)) != Access::kNone;
  if (!Includes(kListRights, list.access) || list.runs.empty() ||
      list.runs.size() > entry->region->max_runs ||
      (remote_change && !Includes(list.access, Access::kLocalWrite))) {
    return MemoryStatus::kInvalidArgument;
  }
  const Access need =
      (list.access & kWriters) != Access::kNone ? Access::kLocalWrite : Access::kNone;
  uint64_t total = 0;
  for (const ListRun& run : list.runs) {
    if (run.length == 0) return MemoryStatus::kInvalidArgument;
    const MemoryStatus status = CheckRun(run, entry->pd, need);
    if (status != MemoryStatus::kOk) return status;
    total += run.length;
  }
  if (list.iova + (total - 1) < list.iova) return MemoryStatus::kInvalidArgument;
  entry->key = list.new_key;
  entry->variant = static_cast<uint8_t>(list.new_key);
  entry->access = list.access;
  entry->iova = list.iova;
  entry->length = total;
  entry->region->is_valid = true;
  uint64_t begin = 0;
  entry->region->runs.clear();
  for (const ListRun& run : list.runs) {
    entry->region->runs.push_back({begin, run});
    begin += run.length;
  }
  return MemoryStatus::kOk;
}

void KeyTable::InvalidateList(Entry* list) {
  list->region->is_valid = false;
  list->region->runs.clear();
  list->access = Access::kNone;
  list->iova = 0;
  list->length = 0;
}

// Runs are resolved through their regions as these are now: one that is gone or has changed makes
// its part of the list unusable.
MemoryStatus KeyTable::AppendRuns(const Entry& list, uint64_t offset, uint32_t length, Access need,
                                  SegmentList& out) const {
  const std::vector<Region::Run>& runs = list.region->runs;
  auto run = std::upper_bound(runs.begin(), runs.end(), offset,
                              [](uint64_t at, const Region::Run& r) { return at < r.begin; }) -
             1;
  const Access through = (need & kWriters) != Access::kNone ? Access::kLocalWrite : Access::kNone;
  while (length > 0) {
    const uint64_t skip = offset - run->begin;
    const auto piece = static_cast<uint32_t>(std::min<uint64_t>(length, run->place.length - skip));
    const MemoryStatus status = CheckRun(run->place, list.pd, through);
    if (status != MemoryStatus::kOk) return status;
    const Entry& region = *Find(run->place.lkey);
    const uint64_t va = region.region->va + (run->place.address + skip - region.iova);
    const MemoryStatus appended = AppendExtents(*region.region, va, piece, out);
    if (appended != MemoryStatus::kOk) return appended;
    offset += piece;
    length -= piece;
    ++run;
  }
  return MemoryStatus::kOk;
}

}  // namespace roci::memory
