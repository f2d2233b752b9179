#include "verbs_provider/session/path_wait.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "verbs_provider/base/clock.h"

namespace roci::provider {
namespace {

// As long as a single answer may take.
constexpr uint64_t kLongestNs = uint64_t{SessionClient::kTimeoutSeconds} * kNsPerSecond;
// A peer in the same network answers in less than a pause of the first length. A dead one costs a
// hundred wake-ups a second.
constexpr uint64_t kFirstPauseNs = 20'000;
constexpr uint64_t kLongestPauseNs = 10 * kNsPerMs;
// Between two requests if paths do not change. The program learns that late of a failure.
constexpr uint64_t kFirstIntervalNs = 20 * kNsPerMs;
constexpr uint64_t kLongestIntervalNs = 160 * kNsPerMs;

uint64_t MonotonicNs() { return ClockNs(CLOCK_MONOTONIC); }

}  // namespace

PathWait::PathWait(const VerbsSession& session)
    : session_(session),
      end_ns_(MonotonicNs() + kLongestNs),
      paths_(Paths()),
      pause_ns_(kFirstPauseNs),
      interval_ns_(kFirstIntervalNs) {}

// A forked child does not have the page.
uint32_t PathWait::Paths() const { return session_.alive() ? session_.bells.paths() : 0; }

bool PathWait::Sleep() {
  const uint64_t begin_ns = MonotonicNs();
  const uint64_t ask_ns = std::min(begin_ns + interval_ns_, end_ns_);
  interval_ns_ = std::min(2 * interval_ns_, kLongestIntervalNs);
  uint64_t now_ns = begin_ns;
  while (session_.alive() && now_ns < ask_ns && Paths() == paths_) {
    const timespec pause = {0, static_cast<long>(std::min(pause_ns_, ask_ns - now_ns))};
    syscall(SYS_nanosleep, &pause, nullptr);  // not nanosleep(), which is a cancellation point
    pause_ns_ = std::min(2 * pause_ns_, kLongestPauseNs);
    now_ns = MonotonicNs();
  }
  paths_ = Paths();
  return session_.alive() && now_ns < end_ns_;
}

}  // namespace roci::provider
