// The keys of a session and their rights; translation of key and address to segments (gate 4).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "memory/mapped_file.h"
#include "memory/segment.h"
#include "memory/split_mix.h"
#include "memory/types.h"

namespace roci::memory {

class IntegrityRegion;
enum class Direction : uint8_t;
struct IntegrityAttributes;
struct IntegrityError;

/// A part of a region with one access method.
struct Extent {
  uint64_t va;      ///< Address in the program.
  uint64_t length;  ///< Bytes, at least 1.
  /// Null: system calls. Otherwise the daemon's mapping; the extent begins at file offset
  /// `file_offset`. A mapping of a file on a disk is accessed by system calls, too.
  std::shared_ptr<MappedFile> mapping;
  uint64_t file_offset;
};

/// Location of a region and how to access it.
struct Translation {
  uint64_t va;      ///< First byte in the program.
  uint64_t length;  ///< Bytes.
  /// Address of the first byte in work requests and packets: `va` for ibv_reg_mr, 0 for zero-based
  /// regions, any value for ibv_reg_mr_iova.
  uint64_t iova;
  /// Sorted, adjacent, covering [va, va + length) exactly. Empty: system calls for all of it.
  std::vector<Extent> extents;
  /// The program that owns the memory; null: the table's program. Outlives the region.
  const AppMemory* app = nullptr;
};

/// Changes of ibv_rereg_mr; absent fields keep their value.
struct RegionChange {
  std::optional<uint32_t> pd;
  std::optional<Access> access;
  std::optional<Translation> translation;
};

/// A bind request (IBTA vol 1, 10.6.7.2 and 11.2.8.12).
struct WindowBinding {
  uint32_t window;      ///< Number of the window: the upper 24 bits of its keys.
  uint32_t new_key;     ///< Its low 8 bits become those of the R_Key.
  uint32_t region_key;  ///< L_Key of the region; ignored if `length` is 0.
  Access access;        ///< Remote rights, and kZeroBased.
  uint64_t address;     ///< First byte, as an address of the region (iova).
  uint64_t length;      ///< Bytes; 0 unbinds a type 1 window.
};

/// A part of an ordinary region in a list region.
struct ListRun {
  uint64_t address;  ///< Address of the region (iova).
  uint32_t length;   ///< Bytes, at least 1.
  uint32_t lkey;     ///< Of the region.
};

/// A request to register a list region (IBTA vol 1, 10.6.5 and 11.4.1.1).
struct ListRegistration {
  uint32_t new_key;  ///< Its new keys: its number and any variant.
  Access access;     ///< Local write, remote read, write and atomic.
  uint64_t iova;     ///< Address of the first byte in work requests and packets.
  std::span<const ListRun> runs;
  /// Signature region only, else null: its attributes, and the runs of its protection information
  /// (none: it follows each block of `runs`, if memory has any).
  const IntegrityAttributes* integrity = nullptr;
  std::span<const ListRun> protection = {};
};

/// The parts of files that must be synced to make a range of a region durable.
struct DurableRange {
  struct Part {
    std::shared_ptr<MappedFile> mapping;
    uint64_t file_offset;
    uint64_t length;
  };
  static constexpr uint32_t kMaxParts = 16;
  std::array<Part, kMaxParts> parts;
  uint32_t count = 0;

  /// Syncs all parts and releases them. Blocks. True: they are durable.
  bool Sync();
};

/// Mappings that the table no longer uses. Returned to the caller, so that the control thread
/// unmaps them and not the dataplane lcore.
using ReleasedMappings = std::vector<std::shared_ptr<MappedFile>>;

/// A row of `roci show mrs`.
struct RegionInfo {
  uint32_t key;
  uint32_t pd;
  Access access;
  bool null_region;
  bool window;  ///< A memory window; `length` is 0 while it is not bound.
  bool list;    ///< A list region; `length` is 0 while it is not registered.
  uint64_t va;
  uint64_t iova;
  uint64_t length;
  uint64_t direct_length;  ///< Bytes that are mapped in the daemon.
  uint32_t extents;
};

/// The keys of a session; sessions that share a context (abi/session.h, ATTACH) share the table.
///
/// Keys have 32 bits: an index in the upper 24 and a variant in the low 8, which changes at each
/// reuse of the index, so that stale keys are detected. The seed determines the first index and
/// variant, so that a key of one session is rarely valid in another and mix-ups are detected. lkey
/// and rkey are the same number; 0 is never a key. Control assigns the PD numbers.
///
/// Owned by one dataplane lcore, which makes all calls (control uses the lcore's mailbox). Entries
/// never move. Only Register* and Reregister allocate.
class KeyTable {
 public:
  /// Keys are in slots. Only a call that adds a key adds a slot.
  static constexpr uint32_t kFirstSlot = 1;

  /// `app` outlives the table. `capacity`: most keys (the advertised max_mr), 1 .. 2^24 - 1.
  /// `seed` 0: keys are 0x101, 0x201, ...
  KeyTable(const AppMemory* app, uint32_t capacity, uint64_t seed = 0);
  ~KeyTable();
  /// After the last use of the table: frees at most `most` regions. False: none is left.
  bool FreeSome(uint32_t most);
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  /// New region. kTableFull, or kInvalidArgument (va or iova range wraps; extents do not cover the
  /// range exactly; remote write or atomic without local write, IBTA vol 1, 10.6.3.1; unknown
  /// access bits; kFlushPersistent without a mapping of a durable file for every byte).
  MemoryStatus Register(uint32_t pd, Access access, Translation translation, uint32_t* key);
  /// A region that discards writes and reads as zeros, at any address (ibv_alloc_null_mr; local use
  /// only).
  MemoryStatus RegisterNull(uint32_t pd, uint32_t* key);
  /// kBadKey, or kInUse while windows are bound to it.
  MemoryStatus Deregister(uint32_t key, ReleasedMappings* released);
  /// As Deregister, but unbinds its windows first: the memory of the region is about to disappear.
  /// Also frees the key of a window or list region. kBadKey. `budget`, if not null, is reduced by
  /// the number of windows; kInUse: it is used up, no window can be bound to the region any more,
  /// and the caller calls again.
  MemoryStatus Drop(uint32_t key, ReleasedMappings* released, uint32_t* budget = nullptr);
  /// The key stays the same. On failure (kBadKey, kInvalidArgument, kInUse while windows are bound
  /// to it) nothing has changed.
  MemoryStatus Reregister(uint32_t key, RegionChange change, ReleasedMappings* released);

  /// A memory window, not bound. kTableFull.
  MemoryStatus AllocateWindow(uint32_t pd, WindowType type, uint32_t* key);
  /// `window` is the upper 24 bits of its keys. Bound or not. kBadKey.
  MemoryStatus DeallocateWindow(uint32_t window);
  /// On failure nothing has changed: kBadKey (no such window or region), kWrongPd (context, window
  /// and region must agree: C10-72), kInUse (a type 2 window that is bound), kNoPermission (the
  /// region lacks kWindowBind, or local write for remote changes: C10-73, C10-74), kOutOfBounds
  /// (C10-75), kInvalidArgument (unknown rights, a zero-based window of type 1 or on a zero-based
  /// region, a type 2 window without length).
  MemoryStatus BindWindow(const WindowBinding& binding, const AccessContext& context);
  /// Ends the registration of a list region, or unbinds a type 2 window: a local invalidate, or a
  /// peer's SEND with invalidate. `key` must be the current R_Key; a bound window must be bound to
  /// context.qpn. Valid for a window that is not bound. kBadKey, kWrongPd, kWrongQp,
  /// kInvalidArgument (neither a list region nor a type 2 window).
  MemoryStatus Invalidate(uint32_t key, const AccessContext& context);
  /// The QP is destroyed: unbinds its windows, so that the next QP of that number cannot use them.
  /// `budget`, if not null, is reduced by the number of windows that were looked at; false: it is
  /// used up, and the caller has to call ReleaseWindowsIn.
  bool ReleaseWindowsOf(uint32_t qpn, uint32_t* budget = nullptr);
  /// The same in `count` slots from `first` on, as ForEach.
  uint32_t ReleaseWindowsIn(uint32_t qpn, uint32_t first, uint32_t count);

  /// A list region with room for `max_runs`, not registered. Its key gives no access yet.
  /// kTableFull.
  MemoryStatus AllocateList(uint32_t pd, uint32_t max_runs, uint32_t* key);
  /// The same for a signature region (memory/integrity.h), which also has room for
  /// `max_protection` runs of protection information.
  MemoryStatus AllocateIntegrity(uint32_t pd, uint32_t max_runs, uint32_t max_protection,
                                 uint32_t* key);
  /// `number` is the upper 24 bits of its keys. Registered or not. kBadKey.
  MemoryStatus FreeList(uint32_t number);
  /// On failure nothing has changed: kBadKey (no such list, or a run's key is not that of an
  /// ordinary region), kWrongPd (context, list and regions must agree), kInUse (it is registered),
  /// kInvalidArgument (unknown rights, remote write or atomic without local write, no runs or too
  /// many, an empty run, addresses that wrap; a signature region without attributes, another list
  /// with them, atomics on a signature region, and errors of IntegrityRegion::Check), kNoPermission
  /// (the region of a run is not writable), kOutOfBounds (a run lies outside of its region).
  MemoryStatus RegisterList(const ListRegistration& list, const AccessContext& context);
  /// The first failed check of a signature region (IntegrityRegion::TakeError). kBadKey: no such
  /// signature region.
  MemoryStatus TakeIntegrityError(uint32_t number, IntegrityError* error);

  /// Switches every extent that overlaps [va, va + length) in `app` (null: the table's program) to
  /// system calls: the program is about to convert migrated memory back into private memory. No
  /// lcore writes through the released mappings any more. Visits `count` slots from `first` on, as
  /// ForEach; allocates unless `released` has room for their extents.
  uint32_t UseProcessVm(uint64_t va, uint64_t length, ReleasedMappings* released,
                        const AppMemory* app = nullptr, uint32_t first = kFirstSlot,
                        uint32_t count = UINT32_MAX);

  /// Switches mapped memory, except DMA buffers, to system calls on the mappings, after an access
  /// through them has blocked an lcore. Visits at most `most` keys and returns their
  /// number; fewer than `most`: all keys are changed.
  uint32_t StopDirectAccess(uint32_t most);

  /// Gate 4. Appends the segments of [address, address + length) to `out` if `key` is valid,
  /// belongs to `context`, grants `need` and covers the range; checked in this order (IBTA vol
  /// 1, 10.6.3.5 and 9.7.4.1.6). `address` is an iova. On failure `out` is unchanged. `length` must
  /// not be 0: the key of an empty request is not checked.
  MemoryStatus Resolve(uint32_t key, const AccessContext& context, uint64_t address,
                       uint32_t length, Access need, SegmentList& out) const {
    const Entry* entry = Find(key);
    if (entry == nullptr) [[unlikely]] {
      return MemoryStatus::kBadKey;
    }
    const uint64_t offset = address - entry->iova;
    // One comparison chain for the common case; the cold path finds the reason of a failure.
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

  /// The checks of key and rights only.
  MemoryStatus CheckKey(uint32_t key, const AccessContext& context, Access need) const;

  /// The parts of files for [address, address + length), or for the whole region of the key, after
  /// the checks of Resolve for kFlushPersistent. kFault: a part is no longer a mapped file.
  MemoryStatus FindDurable(uint32_t key, const AccessContext& context, uint64_t address,
                           uint32_t length, bool whole_region, DurableRange* out) const;

  uint32_t size() const { return used_; }
  uint32_t capacity() const { return capacity_; }
  std::optional<RegionInfo> Info(uint32_t key) const;
  /// Visits the keys in `count` slots from `first` on. Returns the slot behind them; 0: there are
  /// no more.
  uint32_t ForEach(const std::function<void(const RegionInfo&)>& visit, uint32_t first = kFirstSlot,
                   uint32_t count = UINT32_MAX) const;

 private:
  friend class IntegrityRegion;
  friend class ListBytes;
  // The slot behind `count` slots from `first` on, at most behind the last one.
  uint32_t EndOf(uint32_t first, uint32_t count) const;
  enum class Kind : uint8_t { kFree, kRegion, kNull, kWindow1, kWindow2, kList };
  struct Region;
  /// Hot part of a key, one cache line. Windows have no fast path (`direct` is null): each access
  /// is resolved through the region's current state.
  struct alignas(64) Entry {
    uint32_t key;  // 0: free
    uint32_t pd;
    uint64_t iova;
    uint64_t length;
    std::byte* direct;                // first byte, if one mapping covers the whole region
    const std::atomic<bool>* broken;  // of that mapping
    Access access;
    Kind kind;
    uint8_t variant;     // of the last key given out at this index
    uint32_t next_free;  // slot, 0: none
    uint32_t qpn;        // kWindow2: the QP that bound it
    Region* region;      // cold part, owned
  };
  static_assert(sizeof(Entry) == 64);

  /// A run of a list; a list has its runs sorted by their offset in the list.
  struct PlacedRun {
    uint64_t begin;
    ListRun place;
  };

  static constexpr uint32_t kBucketBits = 8;
  static constexpr uint32_t kChunkBits = 10;
  static constexpr uint32_t kChunkSize = 1U << kChunkBits;

  const Entry* Find(uint32_t key) const {
    const uint32_t slot = IndexOfKey(key) - base_;  // wraps to a huge number below base_
    if (slot >= next_slot_) [[unlikely]] {
      return nullptr;
    }
    const Entry* entry = &At(slot);
    return entry->key == key && key != 0 ? entry : nullptr;
  }
  Entry* Find(uint32_t key) {
    return const_cast<Entry*>(static_cast<const KeyTable*>(this)->Find(key));
  }
  Entry& At(uint32_t slot) const { return chunks_[slot >> kChunkBits][slot & (kChunkSize - 1)]; }
  uint8_t FirstVariant(uint32_t slot) const;
  static MemoryStatus CheckEntry(const Entry& entry, const AccessContext& context, uint64_t address,
                                 uint64_t length, Access need);
  MemoryStatus ResolveSlow(const Entry& entry, const AccessContext& context, uint64_t address,
                           uint32_t length, Access need, SegmentList& out) const;
  Segment SegmentOf(const Region& region, const Extent& extent, uint64_t skip,
                    uint32_t length) const;
  bool IsDirect(const Extent& extent) const;
  MemoryStatus AppendExtents(const Region& region, uint64_t va, uint32_t length,
                             SegmentList& out) const;
  static MemoryStatus AppendNull(Access need, uint32_t length, SegmentList& out);
  static bool IsWindow(const Entry& entry) {
    return entry.kind == Kind::kWindow1 || entry.kind == Kind::kWindow2;
  }
  static MemoryStatus CheckWindow(const Entry& entry, const AccessContext& context, Access need);
  static MemoryStatus CheckBinding(const Entry& window, const Entry& region,
                                   const WindowBinding& binding);
  Entry* FindWindow(uint32_t window);
  static uint32_t BucketOf(uint32_t qpn) { return qpn * kGoldenRatio32 >> (32 - kBucketBits); }
  void Unbind(Entry* window);
  Entry* Allocate();
  void Free(Entry* entry);
  void RefreshFastPath(Entry* entry) const;
  RegionInfo Describe(const Entry& entry) const;
  Entry* FindList(uint32_t number);
  MemoryStatus CheckRun(const ListRun& run, uint32_t pd, Access need) const;
  MemoryStatus CheckRuns(std::span<const ListRun> runs, uint32_t pd, Access need,
                         uint64_t* total) const;
  static void PlaceRuns(std::span<const ListRun> runs, std::vector<PlacedRun>* placed);
  static void InvalidateList(Entry* list);
  MemoryStatus AppendList(const Entry& list, uint64_t offset, uint32_t length, Access need,
                          SegmentList& out) const;
  MemoryStatus AppendRuns(std::span<const PlacedRun> runs, uint32_t pd, uint64_t offset,
                          uint32_t length, Access through, SegmentList& out) const;
  bool MayWait(const SegmentList& segments) const;
  /// Copies bytes of a list's data or protection runs, in as many steps as necessary.
  MemoryStatus CopyRuns(const Entry& list, bool of_protection, Direction direction, uint64_t offset,
                        std::span<std::byte> bytes) const;

  const AppMemory* app_;
  uint32_t capacity_;
  uint32_t used_ = 0;
  uint32_t base_;           // the index of a key is its slot plus this
  uint32_t next_slot_ = 1;  // slots below have been used at least once; 0 never is
  uint32_t free_head_ = 0;  // FIFO, so that an index is reused as late as possible
  uint32_t free_tail_ = 0;
  std::unique_ptr<std::unique_ptr<Entry[]>[]> chunks_;
  uint64_t seed_;
  bool is_direct_stopped_ = false;
  uint32_t next_stopped_ = kFirstSlot;  // the first slot that StopDirectAccess has not visited
  // Bound windows of type 2, by a hash of the queue pair number: lists linked through Region.
  std::array<Entry*, 1 << kBucketBits> windows_of_qps_{};
};

}  // namespace roci::memory
