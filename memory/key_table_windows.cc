// Memory windows: keys for a part of a region. Bind, invalidate, unbind.
#include "memory/key_table.h"
#include "memory/key_table_region.h"

namespace roci::memory {
namespace {

constexpr Access kFlushes = Access::kFlushGlobal | Access::kFlushPersistent;
constexpr Access kWindowRights =
    Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic | kFlushes;
// kLocalWrite is accepted and ignored: programs set it as for regions.
constexpr Access kBindMask = kWindowRights | Access::kZeroBased | Access::kLocalWrite;

}  // namespace

KeyTable::Entry* KeyTable::FindWindow(uint32_t window) {
  const uint32_t slot = window - base_;
  if (slot == 0 || slot >= next_slot_) return nullptr;
  Entry* entry = &At(slot);
  return entry->key != 0 && IsWindow(*entry) ? entry : nullptr;
}

MemoryStatus KeyTable::AllocateWindow(uint32_t pd, WindowType type, uint32_t* key) {
  auto region = std::make_unique<Region>();  // may throw: before Allocate()
  Entry* entry = Allocate();
  if (entry == nullptr) return MemoryStatus::kTableFull;
  entry->kind = type == WindowType::kType1 ? Kind::kWindow1 : Kind::kWindow2;
  entry->pd = pd;
  entry->region = region.release();
  *key = entry->key;
  return MemoryStatus::kOk;
}

MemoryStatus KeyTable::DeallocateWindow(uint32_t window) {
  Entry* entry = FindWindow(window);
  if (entry == nullptr) return MemoryStatus::kBadKey;
  Unbind(entry);
  Free(entry);
  return MemoryStatus::kOk;
}

void KeyTable::Unbind(Entry* window) {
  Region* cold = window->region;
  if (cold->parent == nullptr) return;
  Region::Remove(&Region::of_region, window);
  if (window->kind == Kind::kWindow2) Region::Remove(&Region::of_qp, window);
  cold->parent = nullptr;
  window->access = Access::kNone;
  window->iova = 0;
  window->length = 0;
  window->qpn = 0;
}

MemoryStatus KeyTable::CheckBinding(const Entry& window, const Entry& region,
                                    const WindowBinding& binding) {
  if (region.kind != Kind::kRegion) return MemoryStatus::kBadKey;
  if (region.pd != window.pd) return MemoryStatus::kWrongPd;
  if (Includes(region.access, Access::kZeroBased)) return MemoryStatus::kInvalidArgument;
  if (!Includes(region.access, Access::kWindowBind)) return MemoryStatus::kNoPermission;
  const bool changes =
      (binding.access & (Access::kRemoteWrite | Access::kRemoteAtomic)) != Access::kNone;
  const Access flushes = binding.access & kFlushes;
  if ((changes && !Includes(region.access, Access::kLocalWrite)) ||
      !Includes(region.access, flushes)) {
    return MemoryStatus::kNoPermission;
  }
  const uint64_t offset = binding.address - region.iova;
  return offset <= region.length && binding.length <= region.length - offset
             ? MemoryStatus::kOk
             : MemoryStatus::kOutOfBounds;
}

MemoryStatus KeyTable::BindWindow(const WindowBinding& binding, const AccessContext& context) {
  Entry* window = FindWindow(binding.window);
  if (window == nullptr) return MemoryStatus::kBadKey;
  if (window->pd != context.pd) return MemoryStatus::kWrongPd;
  const bool type2 = window->kind == Kind::kWindow2;
  if (type2 && window->region->parent != nullptr) return MemoryStatus::kInUse;
  const bool zero_based = Includes(binding.access, Access::kZeroBased);
  if (!Includes(kBindMask, binding.access) || (zero_based && !type2) ||
      (type2 && binding.length == 0)) {
    return MemoryStatus::kInvalidArgument;
  }
  Entry* region = nullptr;
  if (binding.length != 0) {
    region = Find(binding.region_key);
    if (region == nullptr) return MemoryStatus::kBadKey;
    const MemoryStatus status = CheckBinding(*window, *region, binding);
    if (status != MemoryStatus::kOk) return status;
  }
  Unbind(window);
  window->variant = static_cast<uint8_t>(binding.new_key);
  window->key = binding.window << kKeyVariantBits | window->variant;
  if (region == nullptr) return MemoryStatus::kOk;
  window->access = binding.access & kWindowRights;
  window->iova = zero_based ? 0 : binding.address;
  window->length = binding.length;
  window->qpn = type2 ? context.qpn : 0;
  window->region->parent = region;
  window->region->offset = binding.address - region->iova;
  Region::Insert(&region->region->windows, &Region::of_region, window);
  if (type2) Region::Insert(&windows_of_qps_[BucketOf(window->qpn)], &Region::of_qp, window);
  return MemoryStatus::kOk;
}

MemoryStatus KeyTable::Invalidate(uint32_t key, const AccessContext& context) {
  Entry* window = Find(key);
  if (window == nullptr) return MemoryStatus::kBadKey;
  // A list region belongs to no QP (IBTA vol 1, 10.6.5.1).
  if (window->kind == Kind::kList) {
    if (!window->region->is_valid) return MemoryStatus::kBadKey;
    if (window->pd != context.pd) return MemoryStatus::kWrongPd;
    InvalidateList(window);
    return MemoryStatus::kOk;
  }
  if (window->kind != Kind::kWindow2) return MemoryStatus::kInvalidArgument;
  if (window->pd != context.pd) return MemoryStatus::kWrongPd;
  if (window->region->parent != nullptr && window->qpn != context.qpn) {
    return MemoryStatus::kWrongQp;
  }
  Unbind(window);
  return MemoryStatus::kOk;
}

bool KeyTable::ReleaseWindowsOf(uint32_t qpn, uint32_t* budget) {
  for (Entry* window = windows_of_qps_[BucketOf(qpn)]; window != nullptr;) {
    if (budget != nullptr && (*budget)-- == 0) {
      *budget = 0;
      return false;
    }
    Entry* next = window->region->of_qp.next;
    if (window->qpn == qpn) Unbind(window);
    window = next;
  }
  return true;
}

uint32_t KeyTable::ReleaseWindowsIn(uint32_t qpn, uint32_t first, uint32_t count) {
  const uint32_t end = EndOf(first, count);
  for (uint32_t slot = first; slot < end; ++slot) {
    Entry& entry = At(slot);
    if (entry.kind == Kind::kWindow2 && entry.qpn == qpn) Unbind(&entry);
  }
  return end < next_slot_ ? end : 0;
}

// The key of a window is an R_Key only, and gives no access while the window is not bound.
MemoryStatus KeyTable::CheckWindow(const Entry& entry, const AccessContext& context, Access need) {
  if (entry.region->parent == nullptr) return MemoryStatus::kBadKey;
  if (entry.pd != context.pd) return MemoryStatus::kWrongPd;
  if (entry.kind == Kind::kWindow2 && entry.qpn != context.qpn) return MemoryStatus::kWrongQp;
  return need == Access::kNone ? MemoryStatus::kNoPermission : MemoryStatus::kOk;
}

}  // namespace roci::memory
