// Copies and atomics on one packet's segments.
#include "memory/copy.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>

#include "memory/app_memory.h"
#include "memory/integrity.h"
#include "memory/list_bytes.h"

namespace roci::memory {
namespace {

struct Chunk {
  std::byte* local;
  uint32_t length;
};

// Collects remote segments for one system call.
class RemoteRun {
 public:
  explicit RemoteRun(Direction direction) : direction_(direction) {}
  // Usually all segments of a list belong to one program; several are allowed.
  bool Accepts(const AppMemory* app) const { return count_ == 0 || app_ == app; }
  void Add(const Segment& segment, const Chunk& chunk) {
    app_ = segment.app;
    local_[count_] = iovec{chunk.local, chunk.length};
    remote_[count_] = iovec{reinterpret_cast<void*>(segment.remote_va), chunk.length};
    ++count_;
    total_ += chunk.length;
  }
  bool Run() {
    if (count_ == 0) return true;
    const size_t moved = app_->Transfer(direction_, {local_, count_}, {remote_, count_});
    const bool complete = moved == total_;
    count_ = 0;
    total_ = 0;
    return complete;
  }

 private:
  Direction direction_;
  const AppMemory* app_ = nullptr;
  size_t count_ = 0;
  size_t total_ = 0;
  iovec local_[SegmentList::kCapacity];
  iovec remote_[SegmentList::kCapacity];
};

void CopyDirect(Direction direction, std::byte* direct, const Chunk& chunk) {
  if (direction == Direction::kToApp) {
    std::memcpy(direct, chunk.local, chunk.length);
  } else {
    std::memcpy(chunk.local, direct, chunk.length);
  }
}

MemoryStatus CopySlow(Direction direction, const SegmentList& segments, std::byte* local,
                      size_t length) {
  RemoteRun run(direction);
  for (const Segment& segment : segments) {
    if (length == 0) break;
    const Chunk chunk{local, static_cast<uint32_t>(std::min<size_t>(segment.length, length))};
    if (segment.direct != nullptr) {
      CopyDirect(direction, segment.direct, chunk);
    } else if (segment.kind != SegmentKind::kMemory) {
      const MemoryStatus status = CopyByRegion(direction, segment, {chunk.local, chunk.length});
      if (status != MemoryStatus::kOk) return status;
    } else {
      if (!run.Accepts(segment.app) && !run.Run()) return MemoryStatus::kFault;
      run.Add(segment, chunk);
    }
    local += chunk.length;
    length -= chunk.length;
  }
  return run.Run() && segments.Intact() ? MemoryStatus::kOk : MemoryStatus::kFault;
}

MemoryStatus Copy(Direction direction, const SegmentList& segments, std::byte* local,
                  size_t length) {
  assert(length <= segments.total_length());
  if (length == 0) return MemoryStatus::kOk;
  const Segment& first = segments[0];
  if (first.direct != nullptr && length <= first.length) [[likely]] {
    CopyDirect(direction, first.direct, Chunk{local, static_cast<uint32_t>(length)});
    return segments.Intact() ? MemoryStatus::kOk : MemoryStatus::kFault;
  }
  return CopySlow(direction, segments, local, length);
}

// Changes a number in memory in one of three ways, by the kind of segment. Update maps the old
// value to the new one.
template <class Update>
uint64_t AtomicDirect(std::byte* at, Update update) {
  if (reinterpret_cast<uintptr_t>(at) % sizeof(uint64_t) != 0) {
    // The iova is aligned but the memory is not.
    uint64_t old;
    std::memcpy(&old, at, sizeof old);
    const uint64_t changed = update(old);
    std::memcpy(at, &changed, sizeof changed);
    return old;
  }
  const std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(at));
  uint64_t old = word.load(std::memory_order_relaxed);
  while (!word.compare_exchange_weak(old, update(old), std::memory_order_seq_cst)) {
  }
  return old;
}

template <class Update>
AtomicResult AtomicRemote(const Segment& segment, Update update) {
  const auto guard = segment.app->LockAtomic(segment.remote_va);
  uint64_t old = 0;
  const MemoryStatus read =
      segment.app->Read(segment.remote_va, std::as_writable_bytes(std::span(&old, 1)));
  if (read != MemoryStatus::kOk) return {read, 0};
  // Written even if unchanged, so that read-only memory always faults.
  const uint64_t changed = update(old);
  const MemoryStatus written =
      segment.app->Write(segment.remote_va, std::as_bytes(std::span(&changed, 1)));
  return {written, old};
}

template <class Update>
AtomicResult Atomic(const Segment& segment, Update update) {
  if (segment.length != sizeof(uint64_t)) return {MemoryStatus::kMisaligned, 0};
  if (segment.kind != SegmentKind::kMemory) return {MemoryStatus::kNoPermission, 0};
  if (segment.direct == nullptr) return AtomicRemote(segment, update);
  const uint64_t old = AtomicDirect(segment.direct, update);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (segment.broken != nullptr && segment.broken->load(std::memory_order_relaxed)) {
    return {MemoryStatus::kFault, 0};
  }
  return {MemoryStatus::kOk, old};
}

}  // namespace

MemoryStatus CopyIn(const SegmentList& segments, std::span<const std::byte> bytes) {
  return Copy(Direction::kToApp, segments, const_cast<std::byte*>(bytes.data()), bytes.size());
}

MemoryStatus CopyOut(const SegmentList& segments, std::span<std::byte> bytes) {
  return Copy(Direction::kFromApp, segments, bytes.data(), bytes.size());
}

MemoryStatus CopyByRegion(Direction direction, const Segment& segment, std::span<std::byte> local) {
  const uint64_t offset = segment.remote_va;
  const bool places = direction == Direction::kToApp;
  if (segment.kind == SegmentKind::kList) {
    return places ? segment.list->CopyIn(offset, local) : segment.list->CopyOut(offset, local);
  }
  return places ? segment.integrity->CopyIn(offset, local)
                : segment.integrity->CopyOut(offset, local);
}

AtomicResult CompareAndSwap(const Segment& segment, uint64_t compare, uint64_t swap) {
  return Atomic(segment, [=](uint64_t old) { return old == compare ? swap : old; });
}

AtomicResult FetchAndAdd(const Segment& segment, uint64_t add) {
  return Atomic(segment, [=](uint64_t old) { return old + add; });
}

MemoryStatus AtomicWrite(const Segment& segment, std::span<const std::byte, 8> bytes) {
  if (segment.length != bytes.size()) return MemoryStatus::kMisaligned;
  if (segment.kind != SegmentKind::kMemory) return MemoryStatus::kNoPermission;
  if (segment.direct == nullptr) {
    // The kernel copies an aligned word at once; the lock excludes atomics of other lcores.
    const auto guard = segment.app->LockAtomic(segment.remote_va);
    return segment.app->Write(segment.remote_va, bytes);
  }
  if (reinterpret_cast<uintptr_t>(segment.direct) % sizeof(uint64_t) != 0) {
    // The iova is aligned but the memory is not.
    std::memcpy(segment.direct, bytes.data(), bytes.size());
  } else {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    std::atomic_ref(*reinterpret_cast<uint64_t*>(segment.direct))
        .store(word, std::memory_order_seq_cst);
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  const bool cut = segment.broken != nullptr && segment.broken->load(std::memory_order_relaxed);
  return cut ? MemoryStatus::kFault : MemoryStatus::kOk;
}

}  // namespace roci::memory
