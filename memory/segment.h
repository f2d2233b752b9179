// The result of translation: a short list of segments of program memory. A segment is mapped in
// this process, or accessed by system calls, or is part of a list or signature region, which copies
// it.
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace roci::memory {

class AppMemory;
class IntegrityRegion;
class ListBytes;

/// How a segment is copied: as plain memory, or by its list or signature region.
enum class SegmentKind : uint8_t { kMemory, kList, kIntegrity };

/// A range of program memory. Owns nothing: valid until control state changes on this lcore, that
/// is, within one burst.
struct Segment {
  /// Address in this process; nullptr: not mapped, use `app` or `list`.
  std::byte* direct;
  /// Only if `direct` is nullptr: address in the program, or offset in the list or signature
  /// region.
  uint64_t remote_va;
  union {
    /// direct == nullptr: the program that owns the memory.
    const AppMemory* app;
    /// direct == nullptr, list or signature region: the object that copies it.
    const ListBytes* list;
    IntegrityRegion* integrity;
    /// direct != nullptr: becomes true when the program has truncated the mapped file; bytes read
    /// from `direct` are then zeros, and bytes written there are lost. nullptr: the file is sealed
    /// against truncation.
    const std::atomic<bool>* broken;
  };
  /// Bytes, at least 1.
  uint32_t length;
  /// If not kMemory, `direct` is nullptr.
  SegmentKind kind;

  static Segment Direct(std::byte* base, uint32_t length, const std::atomic<bool>* broken) {
    Segment segment;
    segment.direct = base;
    segment.remote_va = 0;
    segment.broken = broken;
    segment.length = length;
    segment.kind = SegmentKind::kMemory;
    return segment;
  }
  static Segment Remote(const AppMemory* app, uint64_t va, uint32_t length) {
    Segment segment;
    segment.direct = nullptr;
    segment.remote_va = va;
    segment.app = app;
    segment.length = length;
    segment.kind = SegmentKind::kMemory;
    return segment;
  }
  static Segment Integrity(IntegrityRegion* region, uint64_t offset, uint32_t length) {
    Segment segment = ByRegion(SegmentKind::kIntegrity, offset, length);
    segment.integrity = region;
    return segment;
  }
  static Segment List(const ListBytes* list, uint64_t offset, uint32_t length) {
    Segment segment = ByRegion(SegmentKind::kList, offset, length);
    segment.list = list;
    return segment;
  }
  /// Removes the first `bytes`. `bytes` < length.
  void Advance(uint32_t bytes) {
    direct = direct == nullptr ? nullptr : direct + bytes;
    remote_va += bytes;
    length -= bytes;
  }

 private:
  // The caller sets the object that copies it.
  static Segment ByRegion(SegmentKind kind, uint64_t offset, uint32_t length) {
    Segment segment;
    segment.direct = nullptr;
    segment.remote_va = offset;
    segment.length = length;
    segment.kind = kind;
    return segment;
  }
};
static_assert(sizeof(Segment) == 32);

/// Segments in message order. Fixed capacity, allocated on the stack, not zeroed.
class SegmentList {
 public:
  /// Room for 32 SGEs that each cross an extent boundary, and a few more.
  static constexpr uint32_t kCapacity = 72;

  SegmentList() : size_(0), total_length_(0) {}
  SegmentList(const SegmentList& other) { *this = other; }
  SegmentList& operator=(const SegmentList& other) {
    if (this == &other) return *this;
    size_ = other.size_;
    total_length_ = other.total_length_;
    for (uint32_t i = 0; i < size_; ++i) segments_[i] = other.segments_[i];
    return *this;
  }

  void Clear() {
    size_ = 0;
    total_length_ = 0;
  }
  /// False: the list is full and unchanged.
  bool Append(const Segment& segment) {
    if (size_ == kCapacity) [[unlikely]] {
      return false;
    }
    segments_[size_++] = segment;
    total_length_ += segment.length;
    return true;
  }
  /// Removes the segments from index `size` on.
  void Truncate(uint32_t size) {
    assert(size <= size_);
    while (size_ > size) total_length_ -= segments_[--size_].length;
  }

  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  /// Sum of the lengths, bytes.
  uint64_t total_length() const { return total_length_; }
  const Segment& operator[](uint32_t i) const {
    assert(i < size_);
    return segments_[i];
  }
  const Segment* begin() const { return segments_; }
  const Segment* end() const { return segments_ + size_; }

  /// True: every segment is mapped in this process, so the caller may copy (and checksum) itself.
  bool AllDirect() const {
    for (uint32_t i = 0; i < size_; ++i) {
      if (segments_[i].direct == nullptr) return false;
    }
    return true;
  }
  /// True: a list or signature region copies a segment. A signature region requires the bytes of a
  /// block in order.
  bool CopiesItself() const {
    for (uint32_t i = 0; i < size_; ++i) {
      if (segments_[i].kind != SegmentKind::kMemory) return true;
    }
    return false;
  }
  /// Call after access through `direct` pointers. False: the program has truncated one of the
  /// files, so bytes read are invalid and bytes written are lost (report MemoryStatus::kFault).
  bool Intact() const {
    // The handler runs on this thread, or it has run on another thread before this thread could see
    // the page of zeros.
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::atomic_thread_fence(std::memory_order_acquire);
    for (uint32_t i = 0; i < size_; ++i) {
      const Segment& segment = segments_[i];
      if (segment.direct != nullptr && segment.broken != nullptr &&
          segment.broken->load(std::memory_order_relaxed)) [[unlikely]] {
        return false;
      }
    }
    return true;
  }

 private:
  uint32_t size_;
  uint64_t total_length_;
  Segment segments_[kCapacity];
};

}  // namespace roci::memory
