// Batches the copies of a burst of packets, so that copies through process_vm cost one system call
// per program and direction.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "memory/app_memory.h"
#include "memory/segment.h"
#include "memory/types.h"

namespace roci::memory {

/// The copies of one burst. AddIn and AddOut copy segments that are mapped here, and those of
/// signature regions, at once; Flush copies the others. The order within one program and direction
/// is kept. Flush does all writes before all reads: if a read must not see a later write to the
/// same place, flush between them. Not thread-safe; no allocation; about 36 KiB.
class CopyBatch {
 public:
  /// Most pending pieces (remote segments).
  static constexpr uint32_t kMaxPieces = 384;

  /// Copies `bytes` to the front of `segments`. The buffer must stay valid until Flush. `token`
  /// identifies the copy for the caller (for example a packet's index). kTooManySegments: nothing
  /// was added; flush and try again. kFault (a file was truncated) or a result of a signature
  /// region: nothing of this copy is pending.
  MemoryStatus AddIn(const SegmentList& segments, std::span<const std::byte> bytes, uint32_t token);
  /// Copies bytes.size() bytes from the front of `segments`. Otherwise as AddIn.
  MemoryStatus AddOut(const SegmentList& segments, std::span<std::byte> bytes, uint32_t token);

  /// Executes the pending copies and empties the batch. Returns the tokens of the copies that
  /// faulted, possibly with duplicates; the span is valid until the next call of Add* or Flush.
  std::span<const uint32_t> Flush();

  bool empty() const { return size_ == 0; }
  /// Number of pending pieces.
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
  std::array<uint32_t, kMaxPieces> order_;  // pieces of the current group
  std::array<uint32_t, kMaxPieces> failed_;
};

}  // namespace roci::memory
