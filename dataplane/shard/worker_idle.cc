// The idle lcore: pause, yield the processor, sleep.
#include <rte_pause.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/worker.h"
#include "roce/work.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kRoundsBeforeYield = 16;
// A real-time lcore beside other work polls for this long before it sleeps. Longer polling would
// save wake-ups, but take the processor from the programs that the lcore serves.
constexpr uint64_t kPollBeforeSleepNs = 5'000;
// Interval at which full event sockets, and ports that offer nothing to wait for, are polled. It
// grows with the idle time.
constexpr uint64_t kShortestPollNs = 50'000;
constexpr uint64_t kLongestPollNs = roce::kNsPerMs;
constexpr uint64_t kIdlePerPoll = 8;  // the interval is the idle time divided by this
// A frame of the control thread takes two rounds: to the wire, and from there to the receiver.
constexpr uint32_t kRoundsOfShortWork = 4;
constexpr uint64_t kLongestSleepNs = roce::kNsPerSecond;
// Most runs of records that are returned to the kernel before a sleep. Bounded, because a doorbell
// may ring meanwhile.
constexpr uint32_t kTrimmedPerSleep = 32;

}  // namespace

void Worker::Idle() {
  if (options_.spin || ++idle_rounds_ < kRoundsBeforeYield) {
    rte_pause();
    return;
  }
  if (now_ - last_busy_ns_ < uint64_t{options_.idle_sleep_us} * kNsPerUs && yields_.Allows(now_)) {
    // Programs and other daemons may share this processor, and spinning would starve them.
    YieldAtLowPriority();
    return;
  }
  if (priority_.realtime_priority() != 0 && now_ - last_busy_ns_ < kPollBeforeSleepNs) {
    rte_pause();
    return;
  }
  Sleep();
}

// Yields the processor. A real-time thread must be lowered before. It is raised again if other
// threads compete for the processor, because they would delay the response to the next doorbell.
// The first yield after Lower() runs threads that have waited, so its duration does not count as
// competition.
void Worker::YieldAtLowPriority() {
  const bool others_waited = priority_.realtime_priority() != 0 && !priority_.is_lowered();
  priority_.Lower(now_);
  const uint64_t begin = RefreshTime();
  Yield();
  if (others_waited) return;
  yields_.Took(begin, now_);
  if (!yields_.Allows(now_)) priority_.RaiseUnlessBounded(now_);
}

void Worker::Yield() {
  stats_.yields.Add(1);
  lcore_.Lend();
  sched_yield();
  lcore_.TakeBack();
  RefreshTime();
}

void Worker::LetOthersRun() {
  priority_.Lower(Clock::Monotonic());
  sched_yield();
}

void Worker::Sleep() {
  if (!RearmAll()) {
    // The remaining work cannot be done now, or has just arrived. A long yield would delay it.
    if (yields_.Allows(now_)) YieldAtLowPriority();
    return;
  }
  if (!port_waits_.Enable(shard_, now_)) return;
  stash_.Drain();
  const bool more_to_trim = records_.Trim(kTrimmedPerSleep);
  for (VerbsContext* context : contexts_) context->doorbells(shard_).SetSleeping(true);
  lcore_.wake_.SetSleeping(true);
  // A producer stores its work before it reads the flags. So this thread sees the work, or the
  // producer sees the flag and wakes this thread.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!AnythingPending()) {
    stats_.sleeps.Add(1);
    const uint64_t ns = more_to_trim ? std::min(SleepNs(), kShortestPollNs) : SleepNs();
    sleeps_until_ns_ = now_ + ns;
    priority_.Raise(now_);
    const uint64_t begin = now_;
    lcore_.Lend();
    const int ready = Wait(ns);
    lcore_.TakeBack();
    NoteWakeUp(ready);
    // Enabled again before the next sleep: some ports signal only once, and a new peer of the port
    // has the interrupts disabled.
    port_waits_.Disable(shard_);
    priority_.NoteSleep(begin, RefreshTime());
  }
  lcore_.wake_.SetSleeping(false);
  for (VerbsContext* context : contexts_) context->doorbells(shard_).SetSleeping(false);
}

// Arms every polled queue pair. False: one of them has work.
bool Worker::RearmAll() {
  scheduler_.Recheck([this](QueuePair& qp) {
    // In the list though it is armed: it was rung and waits for its visit.
    if (!qp.is_polled(shard_) || qp.core(shard_).HasTransmit()) {
      AwaitTurn(qp);
    } else {
      Rearm(qp);
    }
    if (rearmed_count_ == rearmed_.size()) FinishRearming();
  });
  FinishRearming();
  return scheduler_.empty();
}

bool Worker::AnythingPending() {
  if (lcore_.stopping() || lcore_.mailbox_.Pending()) return true;
  const auto lane_pending = [this](const DeviceLane* lane) {
    return lane->staged(shard_) != 0 || lane->ReceivePending(shard_) || lane->RawPending(shard_) ||
           lane->MatchedPending(shard_);
  };
  const auto context_pending = [this](VerbsContext* context) {
    return context->doorbells(shard_).Pending();
  };
  return durable_writer_.HasDone(shard_) || CopiesPending() ||
         std::any_of(lanes_.begin(), lanes_.end(), lane_pending) ||
         std::any_of(contexts_.begin(), contexts_.end(), context_pending);
}

bool Worker::HasWork() {
  // As in Sleep: the function may have shown the flag `sleeping` to a program.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return !scheduler_.empty() || !events_.empty(shard_) || events_.has_overflowed(shard_) ||
         AnythingPending() || port_waits_.MissesEnabling(shard_) ||
         now_ + SleepNs() < sleeps_until_ns_;
}

// (With virtual time the lcore takes turns with programs, so it does the work itself.)
void Worker::RunShortWork() {
  if (is_virtual_) return;
  runs_for_caller_ = true;
  for (uint32_t round = 0; round < kRoundsOfShortWork && RunOnce() != 0; ++round) {
  }
  runs_for_caller_ = false;
}

// When time alone gives the lcore something to do; TimerNode::kNever: it does not.
uint64_t Worker::NextDue() const {
  static_assert(CompletionEvents::kNever == TimerNode::kNever &&
                DelayQueue::kNever == TimerNode::kNever);
  uint64_t due = std::min(wheel_.NextExpiry(), events_.next_deadline(shard_));
  for (const DeviceLane* lane : lanes_) {
    if (lane->tap(shard_) != nullptr) due = std::min(due, lane->tap(shard_)->next_due());
  }
  return due;
}

uint64_t Worker::SleepNs() {
  uint64_t ns = std::min(kLongestSleepNs, DurableSleepNs());
  if (!refused_.empty()) ns = std::min(ns, kShortestPollNs);
  const uint64_t due = NextDue();
  if (due != TimerNode::kNever) ns = std::min(ns, due > now_ ? due - now_ : 0);
  if (port_waits_.MustPoll(shard_) || events_.has_delayed(shard_)) {
    const uint64_t idle_ns = now_ - last_busy_ns_;
    ns = std::min(ns, std::clamp(idle_ns / kIdlePerPoll, kShortestPollNs, kLongestPollNs));
  }
  return ns;
}

// Returns the number of `wake_ups_`, 0 after the time, -1 after a signal.
int Worker::Wait(uint64_t ns) {
  const timespec timeout{static_cast<time_t>(ns / kNsPerSecond),
                         static_cast<long>(ns % kNsPerSecond)};
  // (glibc has epoll_pwait2() since 2.35.)
  const auto ready = static_cast<int>(syscall(SYS_epoll_pwait2, epoll_, wake_ups_.data(),
                                              kMostWakeUps, &timeout, nullptr, size_t{0}));
  if (ready >= 0 || errno != ENOSYS) return ready;
  return epoll_wait(epoll_, wake_ups_.data(), kMostWakeUps, static_cast<int>(ns / kNsPerMs) + 1);
}

void Worker::NoteWakeUp(int ready) {
  bool by_port = false;
  bool by_doorbell = false;
  for (int i = 0; i < ready; ++i) {
    const auto* lane = static_cast<const DeviceLane*>(wake_ups_[static_cast<size_t>(i)].data.ptr);
    (lane != nullptr ? by_port : by_doorbell) = true;
    if (lane != nullptr) port_waits_.NoteEvent(shard_, *lane);
  }
  if (by_port) stats_.wakes_by_port.Add(1);
  if (by_doorbell) stats_.wakes_by_doorbell.Add(1);
  has_slept_ = true;
  sleep_end_ = by_port      ? PortWaits::Ended::kByPort
               : ready == 0 ? PortWaits::Ended::kByTime
                            : PortWaits::Ended::kByOther;
}

// After the first round behind a sleep.
void Worker::JudgeSleep(uint64_t frames) {
  has_slept_ = false;
  port_waits_.Judge(shard_, sleep_end_, frames, now_);
}

}  // namespace roci::dataplane
