// Groups pending copies by program and direction, and finds the copies that failed.
#include "memory/copy_batch.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "memory/copy.h"

namespace roci::memory {
namespace {

uint32_t CountRemote(const SegmentList& segments, size_t length) {
  uint32_t count = 0;
  for (const Segment& segment : segments) {
    if (length == 0) break;
    count += segment.direct == nullptr && segment.kind == SegmentKind::kMemory ? 1 : 0;
    length -= std::min<size_t>(segment.length, length);
  }
  return count;
}

}  // namespace

MemoryStatus CopyBatch::AddIn(const SegmentList& segments, std::span<const std::byte> bytes,
                              uint32_t token) {
  return Add(segments, const_cast<std::byte*>(bytes.data()), bytes.size(), token,
             Direction::kToApp);
}

MemoryStatus CopyBatch::AddOut(const SegmentList& segments, std::span<std::byte> bytes,
                               uint32_t token) {
  return Add(segments, bytes.data(), bytes.size(), token, Direction::kFromApp);
}

MemoryStatus CopyBatch::Add(const SegmentList& segments, std::byte* local, size_t length,
                            uint32_t token, Direction direction) {
  assert(length <= segments.total_length());
  if (CountRemote(segments, length) > kMaxPieces - size_) return MemoryStatus::kTooManySegments;
  const uint32_t size_before = size_;
  MemoryStatus status = MemoryStatus::kOk;
  for (const Segment& segment : segments) {
    if (length == 0 || status != MemoryStatus::kOk) break;
    const auto run = static_cast<uint32_t>(std::min<size_t>(segment.length, length));
    if (segment.kind != SegmentKind::kMemory) {
      status = CopyByRegion(direction, segment, {local, run});
    } else if (segment.direct == nullptr) {
      pieces_[size_++] = Piece{segment.app, segment.remote_va, local, run, token, direction, false};
    } else if (direction == Direction::kToApp) {
      std::memcpy(segment.direct, local, run);
    } else {
      std::memcpy(local, segment.direct, run);
    }
    local += run;
    length -= run;
  }
  if (status == MemoryStatus::kOk && !segments.Intact()) status = MemoryStatus::kFault;
  // On failure the caller may reuse its buffer.
  if (status != MemoryStatus::kOk) size_ = size_before;
  return status;
}

std::span<const uint32_t> CopyBatch::Flush() {
  failed_size_ = 0;
  for (const Direction direction : {Direction::kToApp, Direction::kFromApp}) {
    for (uint32_t i = 0; i < size_; ++i) {
      if (!pieces_[i].done && pieces_[i].direction == direction) FlushGroup(i);
    }
  }
  size_ = 0;
  return {failed_.data(), failed_size_};
}

void CopyBatch::FlushGroup(uint32_t first) {
  const AppMemory* app = pieces_[first].app;
  const Direction direction = pieces_[first].direction;
  uint32_t count = 0;
  for (uint32_t i = first; i < size_; ++i) {
    Piece& piece = pieces_[i];
    if (piece.done || piece.app != app || piece.direction != direction) continue;
    piece.done = true;
    order_[count] = i;
    local_[count] = iovec{piece.local, piece.length};
    remote_[count] = iovec{reinterpret_cast<void*>(piece.remote_va), piece.length};
    ++count;
  }
  RunGroup(*app, direction, count);
}

// Merges pieces that are adjacent in the program's memory, such as packets of one message, into one
// iovec entry, since the kernel's cost grows with the entries. Returns the bytes copied.
size_t CopyBatch::RunMerged(const AppMemory& app, Direction direction, uint32_t count) {
  uint32_t runs = 0;
  for (uint32_t i = 0; i < count; ++i) {
    iovec* last = runs == 0 ? nullptr : &merged_[runs - 1];
    if (last != nullptr &&
        static_cast<std::byte*>(last->iov_base) + last->iov_len == remote_[i].iov_base) {
      last->iov_len += remote_[i].iov_len;
    } else {
      merged_[runs++] = remote_[i];
    }
  }
  return app.Transfer(direction, {local_.data(), count}, {merged_.data(), runs});
}

// A piece that faults ends the system call early; the next call starts after it. If the process has
// ended, all pieces fail.
void CopyBatch::RunGroup(const AppMemory& app, Direction direction, uint32_t count) {
  uint32_t next = 0;
  for (size_t moved = RunMerged(app, direction, count);
       next < count && moved >= local_[next].iov_len;) {
    moved -= local_[next++].iov_len;
  }
  while (next < count) {
    size_t moved =
        app.Transfer(direction, {&local_[next], count - next}, {&remote_[next], count - next});
    const bool nothing = moved == 0;
    while (next < count && moved >= local_[next].iov_len) moved -= local_[next++].iov_len;
    if (next == count) break;
    failed_[failed_size_++] = pieces_[order_[next++]].token;
    if (nothing && next < count && !app.Alive()) {
      while (next < count) failed_[failed_size_++] = pieces_[order_[next++]].token;
    }
  }
}

}  // namespace roci::memory
