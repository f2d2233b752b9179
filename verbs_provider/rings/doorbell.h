// Telling the daemon that a queue has new entries, where it does not watch that queue by itself.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "verbs_provider/abi/rings.h"

namespace roci::provider {

/// The doorbell page of a session. Any thread may ring.
class Doorbells {
 public:
  Doorbells() = default;
  Doorbells(roci_abi_doorbells* page, int wake_fd) : page_(page), wake_fd_(wake_fd) {}

  /// `handle` < ROCI_ABI_MAX_QP_HANDLES. After a full fence that follows the store of the new
  /// producer index. A bit that is set already is left alone: the daemon will clear it later than
  /// now, and looks at the producer index after that.
  void Ring(uint32_t handle) const {
    SetBit(page_->level0[handle >> 6], handle & 63);
    SetBit(page_->level1[handle >> 12], (handle >> 6) & 63);
    SetBit(page_->level2, handle >> 12);
    Wake();
  }

  /// What the daemon says of its thread (abi/rings.h).
  uint32_t rounds() const {
    return std::atomic_ref<uint32_t>(page_->rounds).load(std::memory_order_relaxed);
  }
  /// Tells pages apart, not always.
  size_t number() const { return reinterpret_cast<uintptr_t>(page_) >> 12; }
  bool is_sleeping() const {
    return std::atomic_ref<uint32_t>(page_->sleeping).load(std::memory_order_relaxed) != 0;
  }

 private:
  static void SetBit(uint64_t& word, uint32_t bit) {
    const std::atomic_ref<uint64_t> shared(word);
    const uint64_t mask = uint64_t{1} << bit;
    if ((shared.load(std::memory_order_seq_cst) & mask) == 0) {
      shared.fetch_or(mask, std::memory_order_seq_cst);
    }
  }

  // One system call per sleep of the daemon: who takes the flag away writes.
  void Wake() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::atomic_ref<uint32_t> sleeping(page_->sleeping);
    if (sleeping.load(std::memory_order_relaxed) == 0 ||
        sleeping.exchange(0, std::memory_order_seq_cst) == 0) {
      return;
    }
    const uint64_t one = 1;
    // Fails only if the counter is full, and then the daemon wakes all the same. Not write(2),
    // where a thread can be cancelled, and it may hold a queue's lock.
    syscall(SYS_write, wake_fd_, &one, sizeof(one));
  }

  roci_abi_doorbells* page_ = nullptr;
  int wake_fd_ = -1;
};

/// Makes the entries before `producer` known to the daemon.
inline void Publish(roci_abi_queue* queue, uint32_t producer, const Doorbells& bells,
                    uint32_t handle) {
  // The exchange is the store and the full fence in one instruction.
  std::atomic_ref<uint32_t>(queue->producer).exchange(producer, std::memory_order_seq_cst);
  if (std::atomic_ref<uint32_t>(queue->armed).load(std::memory_order_relaxed) != 0) [[unlikely]] {
    bells.Ring(handle);
  }
}

}  // namespace roci::provider
