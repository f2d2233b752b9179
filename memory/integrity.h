// What a signature region does to the bytes that cross it: between memory and the wire, protection
// information is made, taken away, carried over and checked.
#pragma once

#include <cstdint>
#include <span>

#include "memory/key_table.h"
#include "memory/t10_dif.h"
#include "memory/types.h"

namespace roci::memory {

/// The transforming half of a list region (KeyTable::RegisterList). Offsets are those of the wire,
/// where each block is followed by its protection information, if the wire has any.
///
/// Bytes that leave are computed from memory whenever they are asked for, in any order and as often
/// as a retransmission needs them. Bytes that arrive are looked at once, on their way to memory: a
/// block must be placed from its first byte to its last with nothing between, in as many pieces as
/// it takes; a piece that neither begins a block nor continues the last piece is refused. (The
/// transport places every byte once, and the bytes of a message in their order.) A failed check
/// stops nothing; the first one is kept.
class IntegrityRegion {
 public:
  /// What registration asks of the numbers of bytes in the lists, and how many users of the key
  /// see. kInvalidArgument: not whole blocks, protection information for another number of blocks
  /// or for a memory that has none, or a block size that there is not.
  static MemoryStatus Check(const IntegrityAttributes& attributes, uint64_t data_bytes,
                            uint64_t protection_bytes, uint64_t* wire_bytes);

  /// Begins anew for `list`, which is being registered; Check was passed.
  void Register(const KeyTable* keys, const KeyTable::Entry* list,
                const IntegrityAttributes& attributes, bool is_interleaved);

  /// Fetches, places [offset, offset + bytes.size()), which lies within the region. kOutOfBounds: a
  /// piece of a block that was not begun. Otherwise what KeyTable::Resolve and copying answer.
  MemoryStatus CopyOut(uint64_t offset, std::span<std::byte> bytes);
  MemoryStatus CopyIn(uint64_t offset, std::span<const std::byte> bytes);

  /// The first check that failed since registration or the last call.
  IntegrityError TakeError();

 private:
  // A piece of one block: `at` is where in the block it begins.
  MemoryStatus Leave(uint64_t block, uint32_t at, std::span<std::byte> out);
  MemoryStatus LeaveProtection(uint64_t block, uint32_t at, std::span<std::byte> out);
  MemoryStatus Enter(uint64_t block, uint32_t at, std::span<const std::byte> in);
  void Begin();
  MemoryStatus Finish(uint64_t block);
  void Note(uint64_t block, const DifMismatch& mismatch);

  uint64_t DataPlace(uint64_t block) const { return block * memory_stride_; }
  MemoryStatus ReadDif(uint64_t block, Dif* dif) const;
  MemoryStatus WriteDif(uint64_t block, const Dif& dif) const;

  const KeyTable* keys_ = nullptr;
  const KeyTable::Entry* list_ = nullptr;
  IntegrityAttributes attributes_;
  uint32_t wire_stride_ = 0;    // bytes from block to block
  uint32_t memory_stride_ = 0;  // the same among the data runs
  bool is_interleaved_ = false;
  IntegrityError error_;
  // Of the block that is arriving.
  uint64_t next_ = 0;  // the only offset at which it may go on
  Guard wire_guard_;
  Guard memory_guard_;
  DifImage arrived_{};
};

}  // namespace roci::memory
