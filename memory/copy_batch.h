// Collects the copies of a burst of packets, so that those through process_vm cost one system call
// per app and direction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/app_memory.h"
#include "memory/segment.h"
#include "memory/types.h"

namespace roci::memory {

/// Copies of one burst. Segments that are mapped here, or of a signature region, are copied at once
/// by Add*; the others when Flush is called. Within one app and direction the order of adding is
/// kept. Flush writes first and reads after: where a read was added before a write to the same
/// place and must not see it, flush between them. One thread; no allocation; about 36 KiB.
class CopyBatch {
 public:
  /// Pieces (remote segments) held at most.
  static constexpr uint32_t kMaxPieces = 384;

  /// Copies `bytes` to the front of `segments`. The buffer must stay until Flush. `token` is the
  /// caller's name for it (an index of a packet, say). kTooManySegments: nothing added, flush and
  /// try again. kFault: a mapping was cut, or what a signature region answers; nothing is pending
  /// of this one.
  MemoryStatus AddIn(const SegmentList& segments, std::span<const std::byte> bytes, uint32_t token);
  /// Fetches bytes.size() bytes from the front of `segments`. As above.
  MemoryStatus AddOut(const SegmentList& segments, std::span<std::byte> bytes, uint32_t token);

  /// Runs what is pending and empties the batch. Returns the tokens of the copies that faulted (a
  /// token may be there more than once); the span is good until the next call of Add or Flush.
  std::span<const uint32_t> Flush();

  bool empty() const { return size_ == 0; }
  /// Pieces pending.
  uint32_t size() const { return size_; }

 private:
  struct Piece {
    const AppMemory* app;
    uint64_t remote_va;
    std::byte* local;
    uint32_t length;
    uint32_t token;
    Direction direction;
    bool done;
  };

  MemoryStatus Add(const SegmentList& segments, std::byte* local, size_t length, uint32_t token,
                   Direction direction);
  void FlushGroup(uint32_t first);
  void RunGroup(const AppMemory& app, Direction direction, uint32_t count);
  size_t RunMerged(const AppMemory& app, Direction direction, uint32_t count);

  uint32_t size_ = 0;
  uint32_t failed_size_ = 0;
  std::array<Piece, kMaxPieces> pieces_;
  std::array<iovec, kMaxPieces> local_;
  std::array<iovec, kMaxPieces> remote_;
  std::array<iovec, kMaxPieces> merged_;
  std::array<uint32_t, kMaxPieces> order_;  // pieces of the group under way
  std::array<uint32_t, kMaxPieces> failed_;
};

}  // namespace roci::memory
