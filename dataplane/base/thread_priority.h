// The scheduling priority of one of the daemon's threads: real-time where the process may have it,
// and bounded, so that no such thread ever takes a processor for itself.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <limits>

namespace roci::dataplane {

// Whether the daemon asks for real-time priority.
enum class RealtimeUse : uint8_t { kAuto, kOn, kOff };

// SCHED_FIFO priorities (sched(7)), lowered to what RLIMIT_RTPRIO allows. An lcore preempts the
// control thread.
inline constexpr int kGuardPriority = 3;
inline constexpr int kLcorePriority = 2;
inline constexpr int kControlPriority = 1;

// A thread under SCHED_FIFO is not preempted by ordinary threads, and its sched_yield() does not
// let them run either. Therefore the owner calls Lower() before it yields, and Adjust() when
// next_change_ns() has come, which makes an ordinary thread of it for kLoweredNs after each
// kRaisedNs. That is also less than the share (95 %) at which kernels throttle real-time threads.
//
// While it is lowered, others may keep it from the processor for seconds. A PriorityGuard notices
// and raises it; hence the owner calls NoteRound() in each round of its loop.
//
// Used by its thread, the owner, except where another is named. Raise() and Lower() make one system
// call when they change something.
class ThreadPriority {
 public:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  static constexpr uint64_t kRaisedNs = 20'000'000;
  static constexpr uint64_t kLoweredNs = 2'000'000;

  // Takes over the calling thread. It gets real-time priority `wanted` if `use` asks for it, the
  // process may have it (root, CAP_SYS_NICE, RLIMIT_RTPRIO), and it has none yet; in any case short
  // slices as an ordinary thread (Linux 6.12), so that a yield costs little. Threads that it
  // creates do not inherit the priority. `now_ns`: CLOCK_MONOTONIC, as everywhere here.
  void Take(RealtimeUse use, int wanted, uint64_t now_ns);

  // The calling thread goes on in the place of the owner, which is to have no priority any more.
  void MoveHere(uint64_t now_ns);

  // Before Take(). `lowered_threads` counts lowered threads. The first lowered thread writes to the
  // eventfd `wake`, on which the guard blocks.
  void SetGuard(std::atomic<uint32_t>* lowered_threads, int wake) {
    lowered_threads_ = lowered_threads;
    wake_ = wake;
  }

  // 0: an ordinary thread. Any thread.
  int realtime_priority() const { return priority_.load(std::memory_order_relaxed); }
  // As the owner left it. Any thread.
  bool is_lowered() const { return lowered_.load(std::memory_order_relaxed); }
  // When Adjust() is due; kNever for an ordinary thread.
  uint64_t next_change_ns() const { return next_change_ns_; }

  void NoteRound() {
    rounds_.store(rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  // Any thread.
  uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }

  // Before the thread sleeps, so that it wakes at once.
  void Raise(uint64_t now_ns) {
    if (is_lowered()) MakeRealtime(now_ns);
  }
  // Where a thread goes on with work: not before the time that Adjust() leaves to others is over.
  void RaiseUnlessBounded(uint64_t now_ns) {
    if (!is_bounded_ || now_ns >= next_change_ns_) Raise(now_ns);
  }
  void Lower(uint64_t now_ns) {
    if (!is_lowered() || raised_by_guard_.load(std::memory_order_relaxed)) MakeOrdinary(now_ns);
  }
  // The guard. The owner goes on as a real-time thread until it lowers itself again.
  void RaiseLowered();
  // `is_busy`: the thread has work; an idle one stays as it is. True: it was lowered, and the
  // caller yields once, so that threads that wait for this processor get it.
  bool Adjust(uint64_t now_ns, bool is_busy);
  // The thread slept from `begin_ns` to `end_ns` and left its processor to others.
  void NoteSleep(uint64_t begin_ns, uint64_t end_ns);

 private:
  void MakeRealtime(uint64_t now_ns);
  void MakeOrdinary(uint64_t now_ns);
  void LosePriority();

  std::atomic<pid_t> thread_{0};
  int nice_ = 0;
  bool is_bounded_ = false;  // Adjust() lowered the thread
  uint64_t changed_ns_ = 0;
  uint64_t next_change_ns_ = kNever;
  std::atomic<int> priority_{0};
  std::atomic<bool> lowered_{false};
  std::atomic<bool> raised_by_guard_{false};
  std::atomic<uint64_t> rounds_{0};
  std::atomic<uint32_t>* lowered_threads_ = nullptr;
  int wake_ = -1;
};

}  // namespace roci::dataplane
