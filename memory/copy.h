// Copies and atomics on resolved memory, one packet at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/segment.h"
#include "memory/types.h"

namespace roci::memory {

enum class Direction : uint8_t;

/// Places `bytes` at the front of `segments` (received payload). bytes.size() <=
/// segments.total_length(). kOk, or kFault with an unknown part placed; of a signature region also
/// what IntegrityRegion::CopyIn answers.
MemoryStatus CopyIn(const SegmentList& segments, std::span<const std::byte> bytes);

/// The part of these for one segment that is not kMemory.
MemoryStatus CopyByRegion(Direction direction, const Segment& segment, std::span<std::byte> local);

/// Fetches bytes.size() <= segments.total_length() bytes from the front of `segments`. As above.
MemoryStatus CopyOut(const SegmentList& segments, std::span<std::byte> bytes);

/// Value in memory before the atomic, in host byte order; valid if status is kOk.
struct AtomicResult {
  MemoryStatus status;
  uint64_t original;
};

/// Compare-and-swap and fetch-and-add on exactly 8 bytes, a number in the host's byte order as
/// verbs have it. Atomic against everything where the memory is mapped here and aligned; otherwise
/// against each other, as long as they name the memory by the same process (IBV_ATOMIC_HCA is what
/// can be advertised).
/// kMisaligned unless `segment` is 8 bytes long; kNoPermission in a signature region.
AtomicResult CompareAndSwap(const Segment& segment, uint64_t compare, uint64_t swap);
AtomicResult FetchAndAdd(const Segment& segment, uint64_t add);

/// Stores 8 bytes as they are, so that nobody who reads the aligned word sees a part of them. kOk,
/// kFault, kMisaligned unless `segment` is 8 bytes long, or kNoPermission in a signature region.
MemoryStatus AtomicWrite(const Segment& segment, std::span<const std::byte, 8> bytes);

}  // namespace roci::memory
