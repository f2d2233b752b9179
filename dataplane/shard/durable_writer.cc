#include "dataplane/shard/durable_writer.h"

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <utility>

namespace roci::dataplane {

DurableWriter::DurableWriter(std::function<void()> done) : done_(std::move(done)) {
  sem_init(&posted_, 0, 0);
}

DurableWriter::~DurableWriter() {
  stop_.store(true, std::memory_order_relaxed);
  for (size_t i = 0; i < threads_.size(); ++i) sem_post(&posted_);
  for (std::thread& thread : threads_) thread.join();
  sem_destroy(&posted_);
}

bool DurableWriter::StartThreads() {
  if (!threads_.empty()) return true;
  // Other threads handle signals.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // Fewer threads are enough if the system cannot create all of them.
  try {
    while (threads_.size() < kThreads) {
      threads_.emplace_back([this] { Run(); });
      pthread_setname_np(threads_.back().native_handle(), "roci-durable");
    }
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return !threads_.empty();
}

DurableWriter::Started DurableWriter::Start(const OnShard& shard, void* owner,
                                            const void* charged_to, memory::DurableRange& range) {
  Slot* free = nullptr;
  uint32_t charged = 0;
  for (Slot& slot : slots_) {
    // Finished syncs that are not collected count too: they still use a slot.
    if (slot.state.load(std::memory_order_relaxed) == State::kFree) {
      if (free == nullptr) free = &slot;
    } else if (slot.charged_to == charged_to) {
      ++charged;
    }
  }
  if (charged >= kSlotsPerProgram) return Started::kProgramFull;
  if (free == nullptr) return Started::kFull;
  GiveUp(shard, owner);
  free->owner = owner;
  free->charged_to = charged_to;
  free->range = std::exchange(range, {});
  free->turn.store(next_turn_++, std::memory_order_relaxed);
  free->state.store(State::kQueued, std::memory_order_release);
  sem_post(&posted_);
  return Started::kYes;
}

void DurableWriter::GiveUp(const OnShard&, const void* owner) {
  for (Slot& slot : slots_) {
    if (slot.owner == owner) slot.owner = nullptr;
  }
}

// There is a queued slot for each thread that calls this. If another thread takes the oldest slot
// first, this thread takes the next.
DurableWriter::Slot& DurableWriter::TakeOldest() {
  for (;;) {
    Slot* oldest = nullptr;
    uint32_t turn = 0;
    for (Slot& slot : slots_) {
      if (slot.state.load(std::memory_order_acquire) != State::kQueued) continue;
      const uint32_t its = slot.turn.load(std::memory_order_relaxed);
      if (oldest != nullptr && static_cast<int32_t>(its - turn) > 0) continue;
      oldest = &slot;
      turn = its;
    }
    State queued = State::kQueued;
    if (oldest != nullptr &&
        oldest->state.compare_exchange_strong(queued, State::kTaken, std::memory_order_acquire)) {
      return *oldest;
    }
  }
}

void DurableWriter::Run() {
  for (;;) {
    while (sem_wait(&posted_) != 0) {
    }
    if (stop_.load(std::memory_order_relaxed)) return;
    Slot& slot = TakeOldest();
    slot.ok = slot.range.Sync();
    slot.state.store(State::kDone, std::memory_order_release);
    done_count_.fetch_add(1, std::memory_order_release);
    done_();
  }
}

}  // namespace roci::dataplane
