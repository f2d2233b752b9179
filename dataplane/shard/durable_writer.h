// Makes files durable for an lcore: a sync takes as long as the disk does, so threads do it that
// may wait, and the lcore hears of the end.
#pragma once

#include <semaphore.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "memory/key_table.h"

namespace roci::dataplane {

// The lcore begins and collects; whatever it has begun and given up is finished and forgotten.
// Nobody has more than a part of the threads, so that one program's slow disk leaves some to
// others.
class DurableWriter {
 public:
  static constexpr uint32_t kThreads = 4;
  static constexpr uint32_t kSlots = 64;
  static constexpr uint32_t kSlotsPerPayer = 2;
  static_assert(kSlotsPerPayer < kThreads);

  enum class Started : uint8_t { kYes, kFull, kPayerFull };

  // `done` is called on threads of the writer, when there is something to collect.
  explicit DurableWriter(std::function<void()> done);
  // Waits for syncs that have begun; others are dropped.
  ~DurableWriter();
  DurableWriter(const DurableWriter&) = delete;
  DurableWriter& operator=(const DurableWriter&) = delete;

  // Control thread, while nobody starts anything: before the first sync. Later: nothing. False if
  // the system has no thread to give.
  bool StartThreads();

  // ---- On the lcore
  // `owner` and `payer` are names: who hears of the end, and who is charged. What the owner has
  // begun before is given up. `range` is taken if it is started.
  Started Start(void* owner, const void* payer, memory::DurableRange& range);
  // The owner goes away, or wants to hear no more.
  void GiveUp(const void* owner);
  bool HasDone() const { return done_count_.load(std::memory_order_relaxed) != collected_; }
  // Calls end(owner, payer, ok) for each sync that is over; the owner of one that was given up is
  // null.
  template <class End>
  void Collect(End&& end) {
    for (Slot& slot : slots_) {
      if (slot.state.load(std::memory_order_acquire) != State::kDone) continue;
      slot.state.store(State::kFree, std::memory_order_relaxed);
      ++collected_;
      end(slot.owner, slot.payer, slot.ok);
    }
  }

 private:
  enum class State : uint8_t { kFree, kQueued, kTaken, kDone };
  struct Slot {
    std::atomic<State> state{State::kFree};
    std::atomic<uint32_t> turn{0};  // the oldest one queued is taken
    bool ok = false;                // written by a thread before kDone
    void* owner = nullptr;          // the lcore's, as the next
    const void* payer = nullptr;
    memory::DurableRange range;  // handed to a thread, which empties it
  };

  void Run();
  Slot& TakeOldest();

  std::function<void()> done_;
  std::array<Slot, kSlots> slots_;
  uint32_t next_turn_ = 0;
  uint32_t collected_ = 0;
  // One for each slot that is queued and that no thread is about to take. That of C++ may sleep for
  // ever in libstdc++ 12.
  sem_t posted_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
  alignas(64) std::atomic<uint32_t> done_count_{0};
};

}  // namespace roci::dataplane
