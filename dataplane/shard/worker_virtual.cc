// The loop with virtual time: the lcore and the programs take turns. While programs react to what
// the lcore has told them, it waits; then it does everything that there is to do at this time,
// which takes no time; if there is nothing, the time jumps to the next event.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/worker.h"

namespace roci::dataplane {
namespace {

// While programs are waited for, the lcore first yields, then sleeps: they need the processor.
constexpr uint32_t kYieldsBeforeSleep = 256;
constexpr uint64_t kSleepNs = 50'000;
// Instead of the time since which threads are waited for: not any more.
constexpr uint64_t kGivenUp = UINT64_MAX;

}  // namespace

bool Worker::LoopVirtually() {
  lcore_.thread_id_.store(gettid(), std::memory_order_relaxed);
  while (AwaitPrograms()) {
    const uint32_t work = RunVirtualRound();
    if (work == kLost) [[unlikely]]
      return false;
    if (work != 0) {
      stats_.virtual_guesses.Add(programs_.TakeGuesses());
    } else {
      AdvanceTime();
    }
  }
  FlushLanes();
  stash_.Drain();
  return true;
}

// Waits until all programs are quiet. False: the lcore is to stop.
bool Worker::AwaitPrograms() {
  for (uint32_t tries = 0; !lcore_.stopping(); ++tries) {
    ServeControl();
    if (programs_.AreQuiet(shard_, contexts_, Clock::Monotonic()) && !AwaitsCaptures()) return true;
    if (tries < kYieldsBeforeSleep) {
      Yield();
    } else {
      SleepReally(kSleepNs);
    }
  }
  return false;
}

void Worker::SleepReally(uint64_t ns) {
  lcore_.Lend();
  Wait(ns);
  lcore_.TakeBack();
}

// What the control thread wants, for which programs may wait: its functions and its frames, which
// take no time.
void Worker::ServeControl() {
  const uint64_t begin_tsc = Clock::Tsc();
  if (const uint32_t calls = lcore_.mailbox_.Serve(shard_); calls != 0)
    CountCalls(calls, begin_tsc);
  if (events_.has_delayed(shard_)) events_.Retry(shard_);
  FlushLanes();
  for (DeviceLane* lane : lanes_) {
    if (lane->ReceivePending(shard_)) ReceiveLane(*lane);
  }
  const uint64_t answers =
      stats_.calls.value() + stats_.async_events.value() + events_.sent.value();
  if (answers == answers_) return;
  answers_ = answers;
  programs_.NoteAnswers();
}

// As RunOnce, but what programs have posted comes first: nothing that they post because of this
// round is part of it. They get their completions at its end.
uint32_t Worker::RunVirtualRound() {
  StartRound();
  uint32_t work = CollectCopies() + CollectDoorbells();
  if (!scheduler_.empty()) work += VisitActive();
  for (DeviceLane* lane : lanes_) work += ReceiveLane(*lane);
  if (!collecting_.empty() && !RunCopies(work)) return kLost;
  work += CollectDurable();
  if (wheel_.DueTick(now_)) work += ExpireTimers();
  if (events_.has_overflowed(shard_)) work += FailUsers();
  work += FlushLanes();
  events_.VisitTouched(
      shard_, [this](const CompletionQueue& cq) { programs_.NoteCompletion(cq.context()); });
  events_.Flush(shard_, now_);
  round_busy_ = work != 0;
  if (work != 0) last_busy_ns_ = now_;
  return work;
}

// Whether to go on waiting for what is awaited since `since_ns` of real time (0: from now on). It
// must not stop the time of all programs: as long as for a program that does not poll.
bool Worker::KeepsWaiting(uint64_t& since_ns) {
  const uint64_t real_ns = Clock::Monotonic();
  if (since_ns == 0) since_ns = real_ns;
  if (since_ns == kGivenUp) return false;
  if (real_ns - since_ns < options_.virtual_time.quiet_ms * kNsPerMs) return true;
  since_ns = kGivenUp;
  stats_.virtual_guesses.Add(1);
  return false;
}

// Whether captures would lose frames, since the control thread has not read them yet.
bool Worker::AwaitsCaptures() {
  const bool have_room = std::ranges::all_of(lanes_, [this](const DeviceLane* lane) {
    const LinkTap* const tap = lane->tap(shard_);
    return tap == nullptr || tap->CapturesHaveRoom();
  });
  if (have_room) {
    captures_since_ns_ = 0;
    return false;
  }
  return KeepsWaiting(captures_since_ns_);
}

// Whether other threads copy or write for queue pairs, which takes no virtual time: a page or a
// disk may keep them waiting.
bool Worker::AwaitsThreads() {
  if (detached_.empty() && refused_.empty() && !durable_writer_.IsBusy(shard_)) {
    threads_since_ns_ = 0;
    return false;
  }
  refused_retry_ns_ = now_;
  return KeepsWaiting(threads_since_ns_);
}

// A round has found nothing to do.
void Worker::AdvanceTime() {
  ServeControl();
  if (AnythingPending() || !programs_.AreQuiet(shard_, contexts_, Clock::Monotonic())) return;
  if (AwaitsThreads()) return Yield();
  // From now on every post rings a doorbell. What a queue pair can still send waits for a frame.
  if (!RearmAll() && !std::exchange(has_rechecked_, true)) return;
  has_rechecked_ = false;
  // The time of a timer that nobody waits for any more (SetTimer) is no event.
  wheel_.SkipEarly([&](TimerNode& node) {
    QueuePair& qp = QueuePair::OfTimer(node);
    return qp.host(shard_).MayNotRun() ? node.expiry_ns : qp.core(shard_).NextTimeout();
  });
  const uint64_t due_ns = NextDue();
  if (due_ns == TimerNode::kNever) return Sleep();
  if (due_ns <= now_) return;
  // The timers of queue pairs whose memory is awaited are set again and again.
  if (threads_since_ns_ == kGivenUp) SleepReally(std::min(due_ns - now_, kNsPerMs));
  stats_.virtual_guesses.Add(programs_.TakeGuesses());
  stats_.virtual_jumps.Add(1);
  stats_.virtual_ns.Add(due_ns - now_);
  clock_.JumpTo(due_ns);
  RefreshTime();
}

}  // namespace roci::dataplane
