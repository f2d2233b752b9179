// The scheduling priority of one of the daemon's threads: real-time where the process may have it,
// and bounded, so that no such thread ever takes a processor for itself.
#pragma once

#include <cstdint>
#include <limits>

namespace roci::dataplane {

// Whether the daemon asks for real-time priority.
enum class RealtimeUse : uint8_t { kAuto, kOn, kOff };

// SCHED_FIFO priorities (sched(7)), lowered to what RLIMIT_RTPRIO allows. An lcore preempts the
// control thread.
inline constexpr int kLcorePriority = 2;
inline constexpr int kControlPriority = 1;

// A thread under SCHED_FIFO is not preempted by ordinary threads, and its sched_yield() does not
// let them run either. Therefore the owner calls Lower() before it yields, and Adjust() when
// next_change_ns() has come, which makes an ordinary thread of it for kLoweredNs after each
// kRaisedNs. That is also less than the share (95 %) at which kernels throttle real-time threads.
//
// Used by its thread only. Raise() and Lower() make one system call when they change something.
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

  // 0: an ordinary thread.
  int realtime_priority() const { return priority_; }
  bool is_raised() const { return raised_; }
  // When Adjust() is due; kNever for an ordinary thread.
  uint64_t next_change_ns() const { return next_change_ns_; }

  void Raise(uint64_t now_ns) {
    if (priority_ != 0 && !raised_) Change(true, now_ns);
  }
  void Lower(uint64_t now_ns) {
    if (raised_) Change(false, now_ns);
  }
  // `is_busy`: the thread has work; an idle one stays as it is. True: it was lowered, and the
  // caller yields once, so that threads that wait for this processor get it.
  bool Adjust(uint64_t now_ns, bool is_busy);
  // The thread slept from `begin_ns` to `end_ns` and left its processor to others.
  void NoteSleep(uint64_t begin_ns, uint64_t end_ns);

 private:
  void Change(bool raise, uint64_t now_ns);

  int priority_ = 0;
  int nice_ = 0;
  bool raised_ = false;
  uint64_t changed_ns_ = 0;
  uint64_t next_change_ns_ = kNever;
};

}  // namespace roci::dataplane
