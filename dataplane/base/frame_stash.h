// An lcore's private stack of free frame buffers: the buffer that was freed last, still in the
// cache, is the next to be used.
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

  // At least one buffer is there; false if the pool is exhausted.
  bool Ensure() { return count_ != 0 || Refill(); }
  rte_mbuf* Top() const { return frames_[count_ - 1]; }
  // The one after next is asked for in advance.
  void Pop() {
    --count_;
    if (count_ >= 2) __builtin_prefetch(frames_[count_ - 2]);
  }

  // Takes back buffers of this pool that nobody else refers to.
  void Put(rte_mbuf** frames, uint32_t count) {
    if (count_ + count > kCapacity) [[unlikely]]
      Spill();
    for (uint32_t i = 0; i < count; ++i) frames_[count_ + i] = frames[i];
    count_ += count;
  }
  // Gives everything back to the pool, before a sleep.
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
  // Gives the older half back.
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
