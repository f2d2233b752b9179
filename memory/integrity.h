// Signature regions: protection information is inserted, stripped, passed on and checked between
// memory and the wire.
#pragma once

#include <cstdint>
#include <span>

#include "memory/key_table.h"
#include "memory/t10_dif.h"
#include "memory/types.h"

namespace roci::memory {

/// Transforms the bytes of a list region (KeyTable::RegisterList). Offsets are those on the wire,
/// where each block is followed by its protection information, if the wire has any.
///
/// Outgoing bytes are computed from memory at each request, in any order and any number of times
/// (retransmission). Incoming bytes are checked once, on their way to memory: the pieces of a block
/// must arrive in order, without other pieces in between; a piece that neither begins a block nor
/// continues the last piece is refused. (The transport places each byte once, and the bytes of a
/// message in order.) A failed check does not stop the transfer; the first one is recorded.
class IntegrityRegion {
 public:
  /// Checks the lengths of the lists at registration, and computes the length of the region.
  /// kInvalidArgument: not whole blocks, protection information for another number of blocks or for
  /// memory without any, or an unsupported block size.
  static MemoryStatus Check(const IntegrityAttributes& attributes, uint64_t data_bytes,
                            uint64_t protection_bytes, uint64_t* wire_bytes);

  /// Resets the state for a new registration of `list`. Check must have returned kOk.
  void Register(const KeyTable* keys, const KeyTable::Entry* list,
                const IntegrityAttributes& attributes, bool is_interleaved);

  /// Reads or writes [offset, offset + bytes.size()), which must lie within the region.
  /// kOutOfBounds: a piece of a block that was not begun. Otherwise the results of
  /// KeyTable::Resolve and of copying.
  MemoryStatus CopyOut(uint64_t offset, std::span<std::byte> bytes);
  MemoryStatus CopyIn(uint64_t offset, std::span<const std::byte> bytes);

  /// The first check that failed since registration or the last call.
  IntegrityError TakeError();

 private:
  // A piece of one block; `at`: its offset in the block.
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
  uint32_t wire_stride_ = 0;    // bytes from block to block on the wire
  uint32_t memory_stride_ = 0;  // bytes from block to block in the data runs
  bool is_interleaved_ = false;
  IntegrityError error_;
  // State of the incoming block.
  uint64_t next_ = 0;  // offset of its next piece
  Guard wire_guard_;
  Guard memory_guard_;
  DifImage arrived_{};
};

}  // namespace roci::memory
