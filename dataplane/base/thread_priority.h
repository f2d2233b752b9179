// The scheduling priority of one of the daemon's threads: real-time if the process may have it, but
// only for bounded times, so that no thread takes a processor for itself.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <limits>

namespace roci::dataplane {

// Whether the daemon asks for real-time priority.
enum class RealtimeUse : uint8_t { kAuto, kOn, kOff };

// SCHED_FIFO priorities (sched(7)), reduced to what RLIMIT_RTPRIO allows. An lcore preempts the
// control thread.
inline constexpr int kGuardPriority = 3;
inline constexpr int kLcorePriority = 2;
inline constexpr int kControlPriority = 1;

// Ordinary threads do not preempt a SCHED_FIFO thread, and its sched_yield() does not let them run
// either. Therefore the thread calls Lower() before it yields, and Adjust() at next_change_ns().
// Adjust() lowers the thread to ordinary priority for kLoweredNs after each kRaisedNs. This share
// is below the 95 % at which the kernel throttles real-time threads.
//
// Other threads may keep a lowered thread from the processor for seconds. A PriorityGuard detects
// that and raises the thread; for this, the thread calls NoteRound() in each round of its loop.
//
// On the thread itself, except where noted. Raise() and Lower() make one system call if they change
// the priority.
class ThreadPriority {
 public:
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  static constexpr uint64_t kRaisedNs = 20'000'000;
  static constexpr uint64_t kLoweredNs = 2'000'000;

  // Manages the calling thread from now on. Sets real-time priority `wanted` if `use` asks for it,
  // the process may have it (root, CAP_SYS_NICE, RLIMIT_RTPRIO), and it has no policy of its own.
  // Sets short slices for ordinary priority (Linux 6.12), so that a yield costs little. Threads
  // that the thread creates do not inherit the priority. `now_ns`: CLOCK_MONOTONIC, here and below.
  void Take(RealtimeUse use, int wanted, uint64_t now_ns);

  // The calling thread replaces the managed one, and takes over its priority.
  void MoveHere(uint64_t now_ns);

  // Called before Take(). `lowered_threads` counts lowered threads. The first lowered thread writes
  // to the eventfd `wake`, on which the guard blocks.
  void SetGuard(std::atomic<uint32_t>* lowered_threads, int wake) {
    lowered_threads_ = lowered_threads;
    wake_ = wake;
  }

  // 0: ordinary priority. Any thread.
  int realtime_priority() const { return priority_.load(std::memory_order_relaxed); }
  // Whether the thread has lowered itself. Any thread.
  bool is_lowered() const { return lowered_.load(std::memory_order_relaxed); }
  // When Adjust() is due; kNever without real-time priority.
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
  // As Raise(), but not within the time for which Adjust() has lowered the thread. For a thread
  // that resumes work.
  void RaiseUnlessBounded(uint64_t now_ns) {
    if (!is_bounded_ || now_ns >= next_change_ns_) Raise(now_ns);
  }
  void Lower(uint64_t now_ns) {
    if (!is_lowered() || raised_by_guard_.load(std::memory_order_relaxed)) MakeOrdinary(now_ns);
  }
  // On the guard. The thread keeps real-time priority until it lowers itself again.
  void RaiseLowered();
  // Lowers the thread, or raises it if it is lowered and has work (`is_busy`). True: the thread was
  // lowered; the caller yields once, so that threads that wait for this processor get it.
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
