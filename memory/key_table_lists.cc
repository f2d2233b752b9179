// List regions: a key for a sequence of runs of other regions, registered and invalidated by work
// requests (fast registration, IBTA vol 1, 10.6.5 and 11.4.1.1). Signature regions are list regions
// with protection information (integrity.h).
#include <algorithm>
#include <cassert>

#include "memory/app_memory.h"
#include "memory/copy.h"
#include "memory/key_table.h"
#include "memory/key_table_region.h"

namespace roci::memory {
namespace {

constexpr Access kListRights =
    Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic;
constexpr Access kWriters = Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteAtomic;

// Most runs of a list that become separate segments, which leaves room for the other SGEs of a
// request (SegmentList::kCapacity).
constexpr uint32_t kRunsOfFirst = 8;
constexpr uint32_t kRunsOfOther = 2;

}  // namespace

KeyTable::Entry* KeyTable::FindList(uint32_t number) {
  const uint32_t slot = number - base_;
  if (slot == 0 || slot >= next_slot_) return nullptr;
  Entry* entry = &At(slot);
  return entry->key != 0 && entry->kind == Kind::kList ? entry : nullptr;
}

MemoryStatus KeyTable::AllocateList(uint32_t pd, uint32_t max_runs, uint32_t* key) {
  auto region = std::make_unique<Region>();  // may throw: before Allocate()
  // Allocate now: a registration runs on the lcore and must not allocate.
  region->runs.reserve(max_runs);
  region->max_runs = max_runs;
  Entry* entry = Allocate();
  if (entry == nullptr) return MemoryStatus::kTableFull;
  entry->kind = Kind::kList;
  entry->pd = pd;
  entry->region = region.release();
  entry->region->bytes.emplace(this, entry);
  *key = entry->key;
  return MemoryStatus::kOk;
}

MemoryStatus KeyTable::AllocateIntegrity(uint32_t pd, uint32_t max_runs, uint32_t max_protection,
                                         uint32_t* key) {
  std::vector<PlacedRun> protection;  // may throw: before AllocateList()
  protection.reserve(max_protection);
  auto integrity = std::make_unique<IntegrityRegion>();
  const MemoryStatus status = AllocateList(pd, max_runs, key);
  if (status != MemoryStatus::kOk) return status;
  Region* region = FindList(IndexOfKey(*key))->region;
  region->protection = std::move(protection);
  region->max_protection = max_protection;
  region->integrity = std::move(integrity);
  return MemoryStatus::kOk;
}

MemoryStatus KeyTable::FreeList(uint32_t number) {
  Entry* entry = FindList(number);
  if (entry == nullptr) return MemoryStatus::kBadKey;
  Free(entry);
  return MemoryStatus::kOk;
}

// Checks that the run lies in an ordinary region of the same protection domain with the rights
// `need`.
MemoryStatus KeyTable::CheckRun(const ListRun& run, uint32_t pd, Access need) const {
  const Entry* region = Find(run.lkey);
  if (region == nullptr || region->kind != Kind::kRegion) return MemoryStatus::kBadKey;
  return CheckEntry(*region, {pd, 0}, run.address, run.length, need);
}

MemoryStatus KeyTable::CheckRuns(std::span<const ListRun> runs, uint32_t pd, Access need,
                                 uint64_t* total) const {
  *total = 0;
  for (const ListRun& run : runs) {
    if (run.length == 0) return MemoryStatus::kInvalidArgument;
    const MemoryStatus status = CheckRun(run, pd, need);
    if (status != MemoryStatus::kOk) return status;
    *total += run.length;
  }
  return MemoryStatus::kOk;
}

void KeyTable::PlaceRuns(std::span<const ListRun> runs, std::vector<PlacedRun>* placed) {
  uint64_t begin = 0;
  placed->clear();
  for (const ListRun& run : runs) {
    placed->push_back({begin, run});
    begin += run.length;
  }
}

MemoryStatus KeyTable::RegisterList(const ListRegistration& list, const AccessContext& context) {
  Entry* entry = FindList(IndexOfKey(list.new_key));
  if (entry == nullptr) return MemoryStatus::kBadKey;
  if (entry->pd != context.pd) return MemoryStatus::kWrongPd;
  Region& region = *entry->region;
  if (region.is_valid) return MemoryStatus::kInUse;
  const bool remote_change =
      (list.access & (Access::kRemoteWrite | Access::kRemoteAtomic)) != Access::kNone;
  const bool is_integrity = region.integrity != nullptr;
  const Access rights = is_integrity ? kListRights & ~Access::kRemoteAtomic : kListRights;
  if (!Includes(rights, list.access) || list.runs.empty() || list.runs.size() > region.max_runs ||
      list.protection.size() > region.max_protection ||
      is_integrity != (list.integrity != nullptr) ||
      (remote_change && !Includes(list.access, Access::kLocalWrite))) {
    return MemoryStatus::kInvalidArgument;
  }
  const Access need =
      (list.access & kWriters) != Access::kNone ? Access::kLocalWrite : Access::kNone;
  uint64_t total = 0;
  uint64_t protection = 0;
  MemoryStatus status = CheckRuns(list.runs, entry->pd, need, &total);
  if (status == MemoryStatus::kOk) {
    status = CheckRuns(list.protection, entry->pd, need, &protection);
  }
  if (status == MemoryStatus::kOk && is_integrity) {
    status = IntegrityRegion::Check(*list.integrity, total, protection, &total);
  }
  if (status != MemoryStatus::kOk) return status;
  if (list.iova + (total - 1) < list.iova) return MemoryStatus::kInvalidArgument;
  entry->key = list.new_key;
  entry->variant = static_cast<uint8_t>(list.new_key);
  entry->access = list.access;
  entry->iova = list.iova;
  entry->length = total;
  region.is_valid = true;
  PlaceRuns(list.runs, &region.runs);
  PlaceRuns(list.protection, &region.protection);
  if (is_integrity) {
    const bool is_interleaved = list.integrity->memory.is_present && list.protection.empty();
    region.integrity->Register(this, entry, *list.integrity, is_interleaved);
  }
  return MemoryStatus::kOk;
}

MemoryStatus KeyTable::TakeIntegrityError(uint32_t number, IntegrityError* error) {
  const Entry* entry = FindList(number);
  if (entry == nullptr || entry->region->integrity == nullptr) return MemoryStatus::kBadKey;
  *error = entry->region->integrity->TakeError();
  return MemoryStatus::kOk;
}

void KeyTable::InvalidateList(Entry* list) {
  list->region->is_valid = false;
  list->region->runs.clear();
  list->region->protection.clear();
  list->access = Access::kNone;
  list->iova = 0;
  list->length = 0;
}

// A signature region becomes one segment: which bytes of memory it needs is known at the copy.
MemoryStatus KeyTable::AppendList(const Entry& list, uint64_t offset, uint32_t length, Access need,
                                  SegmentList& out) const {
  const Region& region = *list.region;
  if (region.integrity != nullptr) {
    return out.Append(Segment::Integrity(region.integrity.get(), offset, length))
               ? MemoryStatus::kOk
               : MemoryStatus::kTooManySegments;
  }
  const Access through = (need & kWriters) != Access::kNone ? Access::kLocalWrite : Access::kNone;
  const uint32_t before = out.size();
  const MemoryStatus status = AppendRuns(region.runs, list.pd, offset, length, through, out);
  const bool has_room = out.size() - before <= (before == 0 ? kRunsOfFirst : kRunsOfOther);
  if (status == MemoryStatus::kTooManySegments || (status == MemoryStatus::kOk && !has_room)) {
    out.Truncate(before);
    return out.Append(Segment::List(&*region.bytes, offset, length))
               ? MemoryStatus::kOk
               : MemoryStatus::kTooManySegments;
  }
  return status;
}

// Runs are resolved through the current state of their regions: a deregistered or changed region
// makes its part of the list inaccessible.
MemoryStatus KeyTable::AppendRuns(std::span<const PlacedRun> runs, uint32_t pd, uint64_t offset,
                                  uint32_t length, Access through, SegmentList& out) const {
  auto run = std::upper_bound(runs.begin(), runs.end(), offset,
                              [](uint64_t at, const PlacedRun& r) { return at < r.begin; }) -
             1;
  while (length > 0) {
    const uint64_t skip = offset - run->begin;
    const auto piece = static_cast<uint32_t>(std::min<uint64_t>(length, run->place.length - skip));
    const MemoryStatus status = CheckRun(run->place, pd, through);
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

// The lcore copies these runs itself, so a program of another user must not be able to block it, by
// its own pages or by those of a file on a disk.
bool KeyTable::MayWait(const SegmentList& segments) const {
  const bool may_wait = is_direct_stopped_ || (app_ != nullptr && app_->is_foreign());
  return std::any_of(segments.begin(), segments.end(), [may_wait](const Segment& segment) {
    return segment.direct == nullptr && segment.kind == SegmentKind::kMemory &&
           (may_wait || segment.app->is_foreign());
  });
}

MemoryStatus KeyTable::CopyRuns(const Entry& list, bool of_protection, Direction direction,
                                uint64_t offset, std::span<std::byte> bytes) const {
  const std::vector<PlacedRun>& runs = of_protection ? list.region->protection : list.region->runs;
  assert(list.region->is_valid && !runs.empty());
  const Access through = direction == Direction::kToApp ? Access::kLocalWrite : Access::kNone;
  while (!bytes.empty()) {
    SegmentList segments;
    auto piece = static_cast<uint32_t>(bytes.size());
    MemoryStatus status = AppendRuns(runs, list.pd, offset, piece, through, segments);
    // Half the length has fewer segments; one byte has one.
    while (status == MemoryStatus::kTooManySegments && piece > 1) {
      piece /= 2;
      segments.Clear();
      status = AppendRuns(runs, list.pd, offset, piece, through, segments);
    }
    if (status != MemoryStatus::kOk) return status;
    if (MayWait(segments)) return MemoryStatus::kFault;
    const std::span<std::byte> front = bytes.first(piece);
    status = direction == Direction::kToApp ? CopyIn(segments, front) : CopyOut(segments, front);
    if (status != MemoryStatus::kOk) return status;
    offset += piece;
    bytes = bytes.subspan(piece);
  }
  return MemoryStatus::kOk;
}

}  // namespace roci::memory
