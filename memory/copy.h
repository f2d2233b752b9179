// Copies and atomics on resolved memory, one packet at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/segment.h"
#include "memory/types.h"

namespace roci::memory {

enum class Direction : uint8_t;

/// Copies `bytes` (received payload) to the front of `segments`. bytes.size() <=
/// segments.total_length(). kOk, or kFault with an unknown part copied; for a signature region also
/// the results of IntegrityRegion::CopyIn.
MemoryStatus CopyIn(const SegmentList& segments, std::span<const std::byte> bytes);

/// Copies one segment that is not kMemory.
MemoryStatus CopyByRegion(Direction direction, const Segment& segment, std::span<std::byte> local);

/// Copies bytes.size() <= segments.total_length() bytes from the front of `segments`. Results as
/// CopyIn.
MemoryStatus CopyOut(const SegmentList& segments, std::span<std::byte> bytes);

/// Value in memory before the atomic, in host byte order; valid if status is kOk.
struct AtomicResult {
  MemoryStatus status;
  uint64_t original;
};

/// Compare-and-swap and fetch-and-add on exactly 8 bytes, a number in host byte order as in verbs.
/// If the memory is mapped here and aligned: atomic against all accesses. Otherwise: atomic against
/// atomics of this daemon through the same process (hence IBV_ATOMIC_HCA). kMisaligned unless
/// `segment` is 8 bytes long; kNoPermission in a signature region.
AtomicResult CompareAndSwap(const Segment& segment, uint64_t compare, uint64_t swap);
AtomicResult FetchAndAdd(const Segment& segment, uint64_t add);

/// Stores 8 bytes unchanged; a reader of the aligned word sees all of them or none. kOk, kFault,
/// kMisaligned unless `segment` is 8 bytes long, or kNoPermission in a signature region.
MemoryStatus AtomicWrite(const Segment& segment, std::span<const std::byte, 8> bytes);

}  // namespace roci::memory
