// Doorbells: notify the daemon of new entries in an armed queue.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "verbs_provider/abi/fence.h"
#include "verbs_provider/abi/rings.h"
#include "verbs_provider/base/held_file.h"
#include "verbs_provider/base/keep_errno.h"

namespace roci::provider {

/// The doorbell page of a session. Any thread may ring.
class Doorbells {
 public:
  Doorbells() = default;
  /// `wake`: the daemon's eventfd; outlives the copies of this object.
  Doorbells(roci_abi_doorbells* page, const HeldFile* wake) : page_(page), wake_(wake) {}

  /// `handle` < ROCI_ABI_MAX_QP_HANDLES. The caller has stored the new producer index, followed by
  /// a full fence. A bit that is set already needs no write: the daemon will clear it and then read
  /// the producer index.
  void Ring(uint32_t handle) const {
    const uint32_t word0 = handle / kWordBits;
    const uint32_t word1 = word0 / kWordBits;
    SetBit(page_->level0[word0], handle % kWordBits);
    SetBit(page_->level1[word1], word0 % kWordBits);
    SetBit(page_->level2, word1);
    Wake();
  }

  /// roci_abi_doorbells::rounds.
  uint32_t rounds() const {
    return std::atomic_ref<uint32_t>(page_->rounds).load(std::memory_order_relaxed);
  }
  /// roci_abi_doorbells::paths.
  uint32_t paths() const {
    return std::atomic_ref<uint32_t>(page_->paths).load(std::memory_order_acquire);
  }
  /// roci_abi_doorbells::empty_polls. After the poll has looked, and after all posts before it.
  void CountEmptyPoll() const {
    std::atomic_ref<uint32_t>(page_->empty_polls).fetch_add(1, std::memory_order_release);
  }
  /// A hash of the page: two pages may have the same number.
  size_t number() const { return reinterpret_cast<uintptr_t>(page_) >> 12; }
  bool is_sleeping() const {
    return std::atomic_ref<uint32_t>(page_->sleeping).load(std::memory_order_relaxed) != 0;
  }

 private:
  static constexpr uint32_t kWordBits = ROCI_ABI_DOORBELL_WORD_BITS;

  static void SetBit(uint64_t& word, uint32_t bit) {
    const std::atomic_ref<uint64_t> shared(word);
    const uint64_t mask = uint64_t{1} << bit;
    if ((shared.load(std::memory_order_seq_cst) & mask) == 0) {
      shared.fetch_or(mask, std::memory_order_seq_cst);
    }
  }

  // Writes to the eventfd if the daemon sleeps. Only the thread that clears the flag does, so there
  // is one system call per sleep.
  void Wake() const {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::atomic_ref<uint32_t> sleeping(page_->sleeping);
    if (sleeping.load(std::memory_order_relaxed) == 0 ||
        sleeping.exchange(0, std::memory_order_seq_cst) == 0) {
      return;
    }
    WriteTo(*wake_);
  }

  // Writes nothing if the program has closed the eventfd: its number may be another file's. (All
  // eventfds have one inode, so another eventfd is not told apart.) Apart from Wake, which is
  // inlined.
  [[gnu::cold, gnu::noinline]] static void WriteTo(const HeldFile& wake) {
    const KeepErrno keep_errno;
    const int fd = wake.fd();
    if (fd < 0) return;
    const uint64_t one = 1;
    // Fails only if the counter is full, and then the daemon wakes anyway. Not write(2), which is a
    // cancellation point: the thread may hold a queue's lock.
    syscall(SYS_write, fd, &one, sizeof(one));
  }

  roci_abi_doorbells* page_ = nullptr;
  const HeldFile* wake_ = nullptr;
};

/// Publishes the entries before `producer` to the daemon.
inline void Publish(roci_abi_queue* queue, uint32_t producer, const Doorbells& bells,
                    uint32_t handle) {
  // On x86, the exchange is the store and the full fence in one instruction.
  std::atomic_ref<uint32_t>(queue->producer).exchange(producer, std::memory_order_seq_cst);
  abi::FenceAfterExchange();
  if (std::atomic_ref<uint32_t>(queue->armed).load(std::memory_order_relaxed) != 0) [[unlikely]] {
    bells.Ring(handle);
  }
}

}  // namespace roci::provider
