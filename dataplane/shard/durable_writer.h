// Makes files durable for an lcore. A sync takes as long as the disk needs, so threads that may
// block execute it and report completion to the lcore.
#pragma once

#include <semaphore.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "dataplane/base/prefetch.h"
#include "memory/key_table.h"

namespace roci::dataplane {

// The lcore starts syncs and collects them. An abandoned sync still completes. A program uses at
// most kSlotsPerProgram slots, so that a slow disk of one program does not stop the others.
class DurableWriter {
 public:
  static constexpr uint32_t kThreads = 4;
  static constexpr uint32_t kSlots = 64;
  static constexpr uint32_t kSlotsPerProgram = 2;
  static_assert(kSlotsPerProgram < kThreads);

  enum class Started : uint8_t { kYes, kFull, kProgramFull };

  // Calls `done`, on a thread of the writer, when a sync can be collected.
  explicit DurableWriter(std::function<void()> done);
  // Waits for running syncs and drops queued ones.
  ~DurableWriter();
  DurableWriter(const DurableWriter&) = delete;
  DurableWriter& operator=(const DurableWriter&) = delete;

  // Control thread, before the first Start. Later calls do nothing. False: no thread can be
  // created.
  bool StartThreads();

  // ---- On the shard
  // Starts a sync of `range` for `owner`, charged to `charged_to`; both pointers are only compared.
  // Gives up the owner's earlier sync. Takes `range` if the sync starts.
  Started Start(const OnShard&, void* owner, const void* charged_to, memory::DurableRange& range);
  // Gives up the owner's sync: Collect does not report `owner` any more.
  void GiveUp(const OnShard&, const void* owner);
  bool HasDone(const OnShard&) const {
    return done_count_.load(std::memory_order_relaxed) != collected_;
  }
  // Whether a sync was started that is not collected.
  bool IsBusy(const OnShard&) const {
    return std::ranges::any_of(slots_, [](const Slot& slot) {
      return slot.state.load(std::memory_order_relaxed) != State::kFree;
    });
  }
  // Calls end(owner, charged_to, ok) for each finished sync. `owner` is null if the sync was given
  // up.
  template <class End>
  void Collect(const OnShard&, End&& end) {
    for (Slot& slot : slots_) {
      if (slot.state.load(std::memory_order_acquire) != State::kDone) continue;
      slot.state.store(State::kFree, std::memory_order_relaxed);
      ++collected_;
      end(slot.owner, slot.charged_to, slot.ok);
    }
  }

 private:
  enum class State : uint8_t { kFree, kQueued, kTaken, kDone };
  struct Slot {
    std::atomic<State> state{State::kFree};
    std::atomic<uint32_t> turn{0};  // order of queueing; the oldest sync is taken first
    bool ok = false;                // written by a thread before kDone
    void* owner = nullptr;          // of the lcore, as is `charged_to`
    const void* charged_to = nullptr;
    memory::DurableRange range;  // passed to a thread, which clears it
  };

  void Run();
  Slot& TakeOldest();

  std::function<void()> done_;
  std::array<Slot, kSlots> slots_;
  uint32_t next_turn_ = 0;
  uint32_t collected_ = 0;
  // Counts the queued slots that no thread is about to take. Not std::counting_semaphore, which may
  // sleep for ever in libstdc++ 12.
  sem_t posted_;
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
  alignas(kCacheLineBytes) std::atomic<uint32_t> done_count_{0};
};

}  // namespace roci::dataplane
