#include "dataplane/durable_writer.h"

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
  // Signals are for the threads that wait for them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // Fewer will do where the system has no room for them all.
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

DurableWriter::Started DurableWriter::Start(void* owner, const void* payer,
                                            memory::DurableRange& range) {
  Slot* free = nullptr;
  uint32_t charged = 0;
  for (Slot& slot : slots_) {
    // What is done and not collected counts: its threads are free, but not its slot.
    if (slot.state.load(std::memory_order_relaxed) == State::kFree) {
      if (free == nullptr) free = &slot;
    } else if (slot.payer == payer) {
      ++charged;
    }
  }
  if (charged >= kSlotsPerPayer) return Started::kPayerFull;
  if (free == nullptr) return Started::kFull;
  GiveUp(owner);
  free->owner = owner;
  free->payer = payer;
  free->range = std::exchange(range, {});
  free->state.store(State::kTaken, std::memory_order_relaxed);
  queue_[tail_++ % kSlots] = static_cast<uint32_t>(free - slots_.data());
  sem_post(&posted_);
  return Started::kYes;
}

void DurableWriter::GiveUp(const void* owner) {
  for (Slot& slot : slots_) {
    if (slot.owner == owner) slot.owner = nullptr;
  }
}

void DurableWriter::Run() {
  for (;;) {
    while (sem_wait(&posted_) != 0) {
    }
    if (stop_.load(std::memory_order_relaxed)) return;
    const uint32_t entry = head_.fetch_add(1, std::memory_order_acq_rel);
    Slot& slot = slots_[queue_[entry % kSlots]];
    slot.ok = slot.range.Sync();
    slot.state.store(State::kDone, std::memory_order_release);
    done_count_.fetch_add(1, std::memory_order_release);
    done_();
  }
}

}  // namespace roci::dataplane
