// The result of translation: a short list of places in app memory, each one either mapped in this
// process or reached through process_vm, or of a list or signature region, which knows where its
// bytes are.
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>

namespace roci::memory {

class AppMemory;
class IntegrityRegion;
class ListBytes;

/// Who copies a run: anybody, or the region that it is of.
enum class SegmentKind : uint8_t { kMemory, kList, kIntegrity };

/// A run of app memory. The list that holds it owns nothing: it is good until control state changes
/// on this lcore, that is, within one burst.
struct Segment {
  /// Where the run is mapped in this process; nullptr: go through `app`.
  std::byte* direct;
  /// Address of the run in the app, or where in a list or signature region it begins. Meaningful
  /// only where `direct` is nullptr.
  uint64_t remote_va;
  union {
    /// direct == nullptr: the process that owns the run.
    const AppMemory* app;
    /// The same if it is of a list or a signature region: what copies it.
    const ListBytes* list;
    IntegrityRegion* integrity;
    /// direct != nullptr: becomes true when the app cut the file under the mapping, after which
    /// bytes read from `direct` are zeros and bytes written there are lost. nullptr: the file is
    /// sealed and cannot be cut.
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
  /// The first `bytes` are dropped. `bytes` < length.
  void Advance(uint32_t bytes) {
    direct = direct == nullptr ? nullptr : direct + bytes;
    remote_va += bytes;
    length -= bytes;
  }

 private:
  // What copies it is still to be set.
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

/// Segments in the order of the message's bytes. Fixed capacity, on the stack, nothing is zeroed.
class SegmentList {
 public:
  /// Room for 32 SGEs of which each one straddles an extent boundary, and some.
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
  /// False, with the list unchanged, when it is full.
  bool Append(const Segment& segment) {
    if (size_ == kCapacity) [[unlikely]] {
      return false;
    }
    segments_[size_++] = segment;
    total_length_ += segment.length;
    return true;
  }
  /// Drops everything from segment `size` on.
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

  /// True when every segment is mapped in this process, so that a caller may copy (and checksum) by
  /// itself.
  bool AllDirect() const {
    for (uint32_t i = 0; i < size_; ++i) {
      if (segments_[i].direct == nullptr) return false;
    }
    return true;
  }
  /// True when a part is copied by its region: a signature region wants the bytes of a block in
  /// their order.
  bool CopiesItself() const {
    for (uint32_t i = 0; i < size_; ++i) {
      if (segments_[i].kind != SegmentKind::kMemory) return true;
    }
    return false;
  }
  /// To be asked after touching `direct` pointers: false when an app cut one of the files
  /// meanwhile, so that the bytes read are not the app's, or the bytes written never reached it
  /// (report MemoryStatus::kFault).
  bool Intact() const {
    // The handler runs on this thread, or ran on another before the page of zeros could be seen
    // here.
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
