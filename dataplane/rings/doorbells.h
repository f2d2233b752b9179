// Finds the queue pairs whose doorbells a program has rung. One load tells whether there are any,
// even with tens of thousands of queue pairs.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

#include "verbs_provider/abi/fence.h"
#include "verbs_provider/abi/rings.h"

namespace roci::dataplane {

// The daemon's side of one doorbell page. One thread.
class Doorbells {
 public:
  static constexpr uint32_t kWordBits = ROCI_ABI_DOORBELL_WORD_BITS;

  Doorbells() = default;
  // `page` is shared with the program and outlives this object.
  explicit Doorbells(roci_abi_doorbells* page) : page_(page) {}

  bool Pending() const {
    return pending2_ != 0 || std::atomic_ref(page_->level2).load(std::memory_order_relaxed) != 0;
  }

  // Calls visit(handle) for at most `budget` rung handles (rounded up to a word of 64), and returns
  // their number. The next call continues. Handles are < ROCI_ABI_MAX_QP_HANDLES and need not
  // exist.
  template <class Visit>
  uint32_t Collect(uint32_t budget, Visit&& visit);

  // Tells the program whether it must write to the wake eventfd after ringing. After `true` the
  // caller must execute a full fence.
  void SetSleeping(bool sleeping) {
    std::atomic_ref(page_->sleeping).store(sleeping ? 1 : 0, std::memory_order_relaxed);
  }

  // Shows the program that this thread runs. `rounds` is not 0 and differs from the last call.
  void SetRounds(uint32_t rounds) {
    std::atomic_ref(page_->rounds).store(rounds, std::memory_order_relaxed);
  }

  // Polls of the program that found nothing, modulo 2^32. What it posted before the last of them is
  // visible to what the caller reads next.
  uint32_t EmptyPolls() const {
    return std::atomic_ref(page_->empty_polls).load(std::memory_order_acquire);
  }

  // Rings a doorbell as the program does, for work that the daemon itself posts. Only on this
  // thread, which checks the page before it sleeps, so no wake-up is needed.
  void Ring(uint32_t handle) {
    const auto set = [](uint64_t& word, uint32_t bit) {
      std::atomic_ref(word).fetch_or(uint64_t{1} << bit, std::memory_order_seq_cst);
    };
    const uint32_t word0 = handle / kWordBits;
    const uint32_t word1 = word0 / kWordBits;
    set(page_->level0[word0], handle % kWordBits);
    set(page_->level1[word1], word0 % kWordBits);
    set(page_->level2, word1);
  }

  void Prefetch() const { __builtin_prefetch(&page_->level2); }

 private:
  static constexpr uint32_t kLevel1Words = ROCI_ABI_MAX_QP_HANDLES / kWordBits / kWordBits;

  // A program does not set a bit that is set: it relies on what is read after the bits are taken.
  static uint64_t Take(uint64_t& word) {
    std::atomic_ref<uint64_t> ref(word);
    if (ref.load(std::memory_order_relaxed) == 0) return 0;
    const uint64_t bits = ref.exchange(0, std::memory_order_acq_rel);
    abi::FenceAfterExchange();
    return bits;
  }

  roci_abi_doorbells* page_ = nullptr;
  // Bits taken from the page and not visited yet.
  uint64_t pending2_ = 0;
  std::array<uint64_t, kLevel1Words> pending1_{};
};

template <class Visit>
uint32_t Doorbells::Collect(uint32_t budget, Visit&& visit) {
  constexpr uint64_t kLevel2Mask = (uint64_t{1} << kLevel1Words) - 1;
  pending2_ |= Take(page_->level2) & kLevel2Mask;
  uint32_t visited = 0;
  while (pending2_ != 0 && visited < budget) {
    const auto i = static_cast<uint32_t>(std::countr_zero(pending2_));
    uint64_t& words = pending1_[i];
    words |= Take(page_->level1[i]);
    while (words != 0 && visited < budget) {
      const uint32_t word = i * kWordBits + static_cast<uint32_t>(std::countr_zero(words));
      words &= words - 1;
      for (uint64_t bits = Take(page_->level0[word]); bits != 0; bits &= bits - 1) {
        visit(word * kWordBits + static_cast<uint32_t>(std::countr_zero(bits)));
        ++visited;
      }
    }
    if (words == 0) pending2_ &= pending2_ - 1;
  }
  return visited;
}

}  // namespace roci::dataplane
