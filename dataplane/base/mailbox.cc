#include "dataplane/base/mailbox.h"

#include <rte_pause.h>
#include <sched.h>

namespace roci::dataplane {
namespace {

// An lcore with a processor of its own answers within the pauses; one that shares the caller's
// processor answers during a yield.
constexpr int kPausesBeforeYield = 50;
constexpr int kYieldsBeforeSleep = 200;

bool IsDone(const std::atomic<uint32_t>& done) { return done.load(std::memory_order_acquire) != 0; }

}  // namespace

void Mailbox::Push(Letter& letter) {
  letter.next = first_.load(std::memory_order_relaxed);
  while (!first_.compare_exchange_weak(letter.next, &letter, std::memory_order_seq_cst)) {
  }
}

uint32_t Mailbox::ServeAll(const OnShard& shard) {
  // Reverses the list, which has the newest letter first: calls of one thread run in order.
  Letter* ordered = nullptr;
  for (Letter* letter = first_.exchange(nullptr, std::memory_order_acquire); letter != nullptr;) {
    Letter* next = letter->next;
    letter->next = ordered;
    ordered = letter;
    letter = next;
  }
  uint32_t served = 0;
  while (ordered != nullptr) {
    Letter* letter = ordered;
    ordered = letter->next;
    letter->function(shard, letter->argument);
    // The letter is on the caller's stack, and gone as soon as the caller sees `done`. notify_one
    // uses its address only.
    letter->done.store(1, std::memory_order_release);
    letter->done.notify_one();
    ++served;
  }
  return served;
}

void Mailbox::Await(Letter& letter) {
  for (int i = 0; i < kPausesBeforeYield; ++i) {
    if (IsDone(letter.done)) return;
    rte_pause();
  }
  for (int i = 0; i < kYieldsBeforeSleep; ++i) {
    if (IsDone(letter.done)) return;
    sched_yield();
  }
  letter.done.wait(0, std::memory_order_acquire);
}

}  // namespace roci::dataplane
