// Outgoing and incoming blocks of a signature region.
#include "memory/integrity.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "memory/app_memory.h"
#include "memory/key_table_region.h"

namespace roci::memory {
namespace {

constexpr uint64_t kNowhere = UINT64_MAX;

uint32_t ProtectionBytes(bool is_there) { return is_there ? kDifBytes : 0; }

}  // namespace

MemoryStatus IntegrityRegion::Check(const IntegrityAttributes& attributes, uint64_t data_bytes,
                                    uint64_t protection_bytes, uint64_t* wire_bytes) {
  if (!IsIntegrityBlockSize(attributes.block_size) ||
      (protection_bytes != 0 && !attributes.memory.is_present)) {
    return MemoryStatus::kInvalidArgument;
  }
  const bool is_interleaved = attributes.memory.is_present && protection_bytes == 0;
  const uint64_t stride = attributes.block_size + ProtectionBytes(is_interleaved);
  const uint64_t blocks = data_bytes / stride;
  if (blocks == 0 || data_bytes % stride != 0 ||
      (protection_bytes != 0 && protection_bytes != blocks * kDifBytes)) {
    return MemoryStatus::kInvalidArgument;
  }
  *wire_bytes = blocks * (attributes.block_size + ProtectionBytes(attributes.wire.is_present));
  return MemoryStatus::kOk;
}

void IntegrityRegion::Register(const KeyTable* keys, const KeyTable::Entry* list,
                               const IntegrityAttributes& attributes, bool is_interleaved) {
  keys_ = keys;
  list_ = list;
  attributes_ = attributes;
  is_interleaved_ = is_interleaved;
  wire_stride_ = attributes.block_size + ProtectionBytes(attributes.wire.is_present);
  memory_stride_ = attributes.block_size + ProtectionBytes(is_interleaved);
  error_ = {};
  next_ = kNowhere;
}

IntegrityError IntegrityRegion::TakeError() {
  const IntegrityError error = error_;
  error_ = {};
  return error;
}

void IntegrityRegion::Note(uint64_t block, const DifMismatch& mismatch) {
  if (mismatch.fault == DifFault::kNone || error_.what.fault != DifFault::kNone) return;
  error_ = {mismatch, block * wire_stride_, list_->key};
}

MemoryStatus IntegrityRegion::ReadDif(uint64_t block, Dif* dif) const {
  DifImage image;
  const uint64_t at =
      is_interleaved_ ? DataPlace(block) + attributes_.block_size : block * kDifBytes;
  const MemoryStatus status =
      keys_->CopyRuns(*list_, !is_interleaved_, Direction::kFromApp, at, image);
  *dif = DecodeDif(image);
  return status;
}

MemoryStatus IntegrityRegion::WriteDif(uint64_t block, const Dif& dif) const {
  DifImage image = EncodeDif(dif);
  const uint64_t at =
      is_interleaved_ ? DataPlace(block) + attributes_.block_size : block * kDifBytes;
  return keys_->CopyRuns(*list_, !is_interleaved_, Direction::kToApp, at, image);
}

// ---- Out ----

MemoryStatus IntegrityRegion::CopyOut(uint64_t offset, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const auto at = static_cast<uint32_t>(offset % wire_stride_);
    const size_t piece = std::min<size_t>(bytes.size(), wire_stride_ - at);
    const MemoryStatus status = Leave(offset / wire_stride_, at, bytes.first(piece));
    if (status != MemoryStatus::kOk) return status;
    offset += piece;
    bytes = bytes.subspan(piece);
  }
  return MemoryStatus::kOk;
}

MemoryStatus IntegrityRegion::Leave(uint64_t block, uint32_t at, std::span<std::byte> out) {
  const uint32_t data_bytes = attributes_.block_size;
  if (at < data_bytes) {
    const MemoryStatus status =
        keys_->CopyRuns(*list_, false, Direction::kFromApp, DataPlace(block) + at,
                        out.first(std::min<size_t>(out.size(), data_bytes - at)));
    if (status != MemoryStatus::kOk) return status;
  }
  const size_t end = at + out.size();
  const bool is_checked = attributes_.memory.is_present && end == wire_stride_;
  return end > data_bytes || is_checked ? LeaveProtection(block, at, out) : MemoryStatus::kOk;
}

// The block is checked when its last bytes are requested. It is read again unless this piece has
// all of it: its first bytes may have been in an earlier packet.
MemoryStatus IntegrityRegion::LeaveProtection(uint64_t block, uint32_t at,
                                              std::span<std::byte> out) {
  const DifDomain& memory = attributes_.memory;
  const DifDomain& wire = attributes_.wire;
  const uint32_t data_bytes = attributes_.block_size;
  const size_t end = at + out.size();
  std::array<std::byte, kMaxIntegrityBlock> again;
  std::span<const std::byte> data = out;
  if (at != 0) {
    const std::span<std::byte> whole = std::span(again).first(data_bytes);
    const MemoryStatus status =
        keys_->CopyRuns(*list_, false, Direction::kFromApp, DataPlace(block), whole);
    if (status != MemoryStatus::kOk) return status;
    data = whole;
  }
  data = data.first(data_bytes);
  Dif stored;
  if (memory.is_present) {
    const MemoryStatus status = ReadDif(block, &stored);
    if (status != MemoryStatus::kOk) return status;
    if (end == wire_stride_) {
      const uint16_t guard = attributes_.checks.guard ? GuardOf(memory, data) : 0;
      Note(block, CheckDif(memory, attributes_.checks, block, guard, stored));
    }
  }
  if (!wire.is_present) return MemoryStatus::kOk;
  const bool is_copied = memory.is_present && GuardIsCopied(memory, wire);
  const uint16_t guard = is_copied ? 0 : GuardOf(wire, data);
  const DifImage image = EncodeDif(memory.is_present ? CarryDif(memory, wire, block, guard, stored)
                                                     : MakeDif(wire, block, guard));
  const uint32_t from = std::max(at, data_bytes);
  std::memcpy(out.data() + (from - at), image.data() + (from - data_bytes), end - from);
  return MemoryStatus::kOk;
}

// ---- In ----

MemoryStatus IntegrityRegion::CopyIn(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto at = static_cast<uint32_t>(offset % wire_stride_);
    const size_t piece = std::min<size_t>(bytes.size(), wire_stride_ - at);
    if (at == 0) {
      Begin();
    } else if (offset != next_) {
      return MemoryStatus::kOutOfBounds;
    }
    next_ = kNowhere;  // until the bytes are copied
    const uint64_t block = offset / wire_stride_;
    MemoryStatus status = Enter(block, at, bytes.first(piece));
    if (status == MemoryStatus::kOk && at + piece == wire_stride_) status = Finish(block);
    if (status != MemoryStatus::kOk) return status;
    offset += piece;
    bytes = bytes.subspan(piece);
    next_ = offset;
  }
  return MemoryStatus::kOk;
}

void IntegrityRegion::Begin() {
  wire_guard_ = Guard(attributes_.wire.guard, attributes_.wire.seed);
  memory_guard_ = Guard(attributes_.memory.guard, attributes_.memory.seed);
}

MemoryStatus IntegrityRegion::Enter(uint64_t block, uint32_t at, std::span<const std::byte> in) {
  const DifDomain& memory = attributes_.memory;
  const DifDomain& wire = attributes_.wire;
  const uint32_t data_bytes = attributes_.block_size;
  if (at < data_bytes) {
    const auto data = in.first(std::min<size_t>(in.size(), data_bytes - at));
    // Computed over the received bytes, not over memory, which the program can change.
    if (wire.is_present && attributes_.checks.guard) wire_guard_.Update(data);
    if (memory.is_present && !(wire.is_present && GuardIsCopied(wire, memory))) {
      memory_guard_.Update(data);
    }
    const std::span<std::byte> bytes{const_cast<std::byte*>(data.data()), data.size()};
    const MemoryStatus status =
        keys_->CopyRuns(*list_, false, Direction::kToApp, DataPlace(block) + at, bytes);
    if (status != MemoryStatus::kOk) return status;
  }
  const size_t end = at + in.size();
  if (end > data_bytes) {
    const uint32_t from = std::max(at, data_bytes);
    std::memcpy(arrived_.data() + (from - data_bytes), in.data() + (from - at), end - from);
  }
  return MemoryStatus::kOk;
}

MemoryStatus IntegrityRegion::Finish(uint64_t block) {
  const DifDomain& memory = attributes_.memory;
  const DifDomain& wire = attributes_.wire;
  const Dif arrived = DecodeDif(arrived_);
  if (wire.is_present) {
    Note(block, CheckDif(wire, attributes_.checks, block, wire_guard_.value(), arrived));
  }
  if (!memory.is_present) return MemoryStatus::kOk;
  const uint16_t guard = memory_guard_.value();
  return WriteDif(block, wire.is_present ? CarryDif(wire, memory, block, guard, arrived)
                                         : MakeDif(memory, block, guard));
}

}  // namespace roci::memory
