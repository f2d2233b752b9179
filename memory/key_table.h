// The keys of one session: what each lkey/rkey grants, and translation (gate 4): key and address
// in, segments out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "memory/mapped_file.h"
#include "memory/segment.h"
#include "memory/types.h"

namespace roci::memory {

/// A run of a region that is reached in one way.
struct Extent {
  uint64_t va;      ///< Address in the app.
  uint64_t length;  ///< Bytes, at least 1.
  /// Null: process_vm. Otherwise the daemon's mapping, in which the run begins at file offset
  /// `file_offset`.
  std::shared_ptr<MappedFile> mapping;
  uint64_t file_offset;
};

/// Where a region lies and how to reach it.
struct Translation {
  uint64_t va;      ///< First byte in the app.
  uint64_t length;  ///< Bytes.
  /// The address that users of the key name the first byte by: `va` for ibv_reg_mr, 0 for
  /// zero-based regions, anything for ibv_reg_mr_iova.
  uint64_t iova;
  /// Sorted, adjacent, covering [va, va + length) exactly. Empty: all of it through process_vm.
  std::vector<Extent> extents;
};

/// What ibv_rereg_mr may change; what is absent stays.
struct RegionChange {
  std::optional<uint32_t> pd;
  std::optional<Access> access;
  std::optional<Translation> translation;
};

/// Mappings that are no longer used by the table. Handed back to the caller so that the control
/// thread unmaps them and not the dataplane lcore.
using ReleasedMappings = std::vector<std::shared_ptr<MappedFile>>;

/// What `roci show mr` tells.
struct RegionInfo {
  uint32_t key;
  uint32_t pd;
  Access access;
  bool null_region;
  uint64_t va;
  uint64_t iova;
  uint64_t length;
  uint64_t direct_length;  ///< Bytes of it that are mapped in the daemon.
  uint32_t extents;
};

/// Keys are 32 bits: an index in the upper 24 and a variant in the low 8 that changes whenever the
/// index is used again, so that a stale key is noticed. lkey and rkey are the same number; 0 is
/// never a key. PDs are plain numbers given by control.
///
/// Owned by one dataplane lcore; every member is called on it (control goes through the lcore's
/// mailbox). Entries never move. Only Register* and Reregister allocate.
class KeyTable {
 public:
  /// `app` outlives the table. At most `capacity` keys (the advertised max_mr), 1 .. 2^24 - 1.
  KeyTable(const AppMemory* app, uint32_t capacity);
  ~KeyTable();
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  /// New region. kTableFull, or kInvalidArgument (va or iova range wraps; extents leave a hole or
  /// stick out; remote write or atomic without local write, which IBTA vol 1, 10.6.3.1 rules out;
  /// unknown access bits).
  MemoryStatus Register(uint32_t pd, Access access, Translation translation, uint32_t* key);
  /// A region that takes every write and reads as zeros, at any address (ibv_alloc_null_mr; local
  /// use only).
  MemoryStatus RegisterNull(uint32_t pd, uint32_t* key);
  /// kBadKey, or kInUse while windows are bound to it.
  MemoryStatus Deregister(uint32_t key, ReleasedMappings* released);
  /// Keeps the key. On failure nothing has changed.
  MemoryStatus Reregister(uint32_t key, RegionChange change, ReleasedMappings* released);

  /// From now on every extent that overlaps [va, va + length) in the app is reached through
  /// process_vm: the app is about to turn converted memory back into private memory. When this
  /// returns no lcore writes through the mappings any more.
  void UseProcessVm(uint64_t va, uint64_t length, ReleasedMappings* released);

  /// Gate 4. Appends the segments of [address, address + length) to `out` if `key` is valid,
  /// belongs to `context`, grants `need` and covers the range; checked in this order (IBTA vol
  /// 1, 10.6.3.5 and 9.7.4.1.6). `address` is as the key's user names it (iova). On failure `out`
  /// is as before. A request of zero bytes must not come here: its key is not checked.
  MemoryStatus Resolve(uint32_t key, const AccessContext& context, uint64_t address,
                       uint32_t length, Access need, SegmentList& out) const {
    const Entry* entry = Find(key);
    if (entry == nullptr) [[unlikely]] {
      return MemoryStatus::kBadKey;
    }
    const uint64_t offset = address - entry->iova;
    // One comparison chain for the common case; the reasons are sorted out off the hot path.
    if (entry->direct != nullptr && entry->pd == context.pd && Includes(entry->access, need) &&
        offset < entry->length && uint64_t{length} - 1 < entry->length - offset &&
        (entry->broken == nullptr || !entry->broken->load(std::memory_order_relaxed))) [[likely]] {
      return out.Append(Segment::Direct(entry->direct + offset, length, entry->broken))
                 ? MemoryStatus::kOk
                 : MemoryStatus::kTooManySegments;
    }
    return ResolveSlow(*entry, context, address, length, need, out);
  }

  /// The checks of Resolve without the segments: for a whole message of up to 2^31 bytes at its
  /// first packet.
  MemoryStatus Check(uint32_t key, const AccessContext& context, uint64_t address, uint64_t length,
                     Access need) const;

  uint32_t size() const { return used_; }
  uint32_t capacity() const { return capacity_; }
  std::optional<RegionInfo> Info(uint32_t key) const;
  void ForEach(const std::function<void(const RegionInfo&)>& visit) const;

 private:
  enum class Kind : uint8_t { kFree, kRegion, kNull };
  struct Region;
  /// Hot part of a key, one cache line. A memory window will be one more kind, with its parent in
  /// `region`.
  struct alignas(64) Entry {
    uint32_t key;  // 0: free
    uint32_t pd;
    uint64_t iova;
    uint64_t length;
    std::byte* direct;                // first byte, if one mapping holds all of it
    const std::atomic<bool>* broken;  // of that mapping
    Access access;
    Kind kind;
    uint8_t variant;     // of the last key given out at this index
    uint32_t next_free;  // index, 0: none
    Region* region;      // cold part, owned
  };
  static_assert(sizeof(Entry) == 64);

  static constexpr uint32_t kChunkBits = 10;
  static constexpr uint32_t kChunkSize = 1U << kChunkBits;

  const Entry* Find(uint32_t key) const {
    const uint32_t index = key >> 8;
    if (index >= next_index_) [[unlikely]] {
      return nullptr;
    }
    const Entry* entry = &chunks_[index >> kChunkBits][index & (kChunkSize - 1)];
    return entry->key == key && key != 0 ? entry : nullptr;
  }
  Entry* Find(uint32_t key) {
    return const_cast<Entry*>(static_cast<const KeyTable*>(this)->Find(key));
  }
  static MemoryStatus CheckEntry(const Entry& entry, const AccessContext& context, uint64_t address,
                                 uint64_t length, Access need);
  MemoryStatus ResolveSlow(const Entry& entry, const AccessContext& context, uint64_t address,
                           uint32_t length, Access need, SegmentList& out) const;
  MemoryStatus AppendExtents(const Region& region, uint64_t va, uint32_t length,
                             SegmentList& out) const;
  static MemoryStatus AppendNull(Access need, uint32_t length, SegmentList& out);
  Entry* Allocate();
  void Free(Entry* entry);
  static void RefreshFastPath(Entry* entry);
  static RegionInfo Describe(const Entry& entry);

  const AppMemory* app_;
  uint32_t capacity_;
  uint32_t used_ = 0;
  uint32_t next_index_ = 1;  // indices below have been used at least once; 0 never is
  uint32_t free_head_ = 0;   // first in, first out, so that an index rests as long as possible
  uint32_t free_tail_ = 0;
  std::unique_ptr<std::unique_ptr<Entry[]>[]> chunks_;
};

}  // namespace roci::memory
