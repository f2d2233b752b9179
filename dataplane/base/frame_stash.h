// An lcore's private stack of free frame buffers. The buffer that was freed last is used next,
// because it is still in the cache.
#pragma once

#include <rte_mbuf.h>
#include <rte_mempool.h>

#include <array>
#include <cstdint>

namespace roci::dataplane {

// One thread. Holds buffers as rte_pktmbuf_free leaves them: one segment, reference count 1.
class FrameStash {
 public:
  explicit FrameStash(rte_mempool* pool) : pool_(pool) {}
  ~FrameStash() { Drain(); }
  FrameStash(const FrameStash&) = delete;
  FrameStash& operator=(const FrameStash&) = delete;

  // Makes sure that the stash has a buffer. False: the pool is exhausted.
  bool Ensure() { return count_ != 0 || Refill(); }
  rte_mbuf* Top() const { return frames_[count_ - 1]; }
  // Prefetches the buffer after next.
  void Pop() {
    --count_;
    if (count_ >= 2) __builtin_prefetch(frames_[count_ - 2]);
  }

  // Takes back `count` buffers of this pool to which there are no other references.
  void Put(rte_mbuf** frames, uint32_t count) {
    if (count_ + count > kCapacity) [[unlikely]]
      Spill();
    for (uint32_t i = 0; i < count; ++i) frames_[count_ + i] = frames[i];
    count_ += count;
  }
  // Returns all buffers to the pool, before the lcore sleeps.
  void Drain() {
    rte_mempool_put_bulk(pool_, reinterpret_cast<void**>(frames_.data()), count_);
    count_ = 0;
  }

 private:
  static constexpr uint32_t kCapacity = 256;
  static constexpr uint32_t kBulk = 32;

  bool Refill() {
    if (rte_mempool_get_bulk(pool_, reinterpret_cast<void**>(frames_.data()), kBulk) != 0) {
      return false;
    }
    count_ = kBulk;
    return true;
  }
  // Returns the older half to the pool.
  void Spill() {
    constexpr uint32_t kHalf = kCapacity / 2;
    rte_mempool_put_bulk(pool_, reinterpret_cast<void**>(frames_.data()), kHalf);
    for (uint32_t i = kHalf; i < count_; ++i) frames_[i - kHalf] = frames_[i];
    count_ -= kHalf;
  }

  rte_mempool* pool_;
  uint32_t count_ = 0;
  std::array<rte_mbuf*, kCapacity> frames_;
};

}  // namespace roci::dataplane
