// Checks progress in simulated time: without link faults a completion must come within a bound that
// follows from the connection's timers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "roce/headers.h"
#include "roce/work.h"
#include "tests/sim/connection.h"

namespace roci::sim {

class Liveness {
 public:
  // The links have no faults from `faults_end` on.
  Liveness(const Connection& connection, roce::TimeNs faults_end)
      : bound_ns_(Bound(connection)), last_(faults_end) {}

  // `done` is the number of completions so far. Returns what is wrong, if anything.
  std::optional<std::string> Note(roce::TimeNs now, uint64_t done) {
    if (done != done_) {
      done_ = done;
      if (now > last_) last_ = now;
    }
    if (now <= last_ || now - last_ <= bound_ns_) return std::nullopt;
    return "no progress for " + std::to_string(now - last_) + " ns without faults";
  }

 private:
  // A packet lost before the end of the faults is retransmitted after a timeout, which may be four
  // times the requested one (IBTA vol 1, 9.7.6.1.3), and may then wait for receives. The rest is
  // for the longest message over the slowest link.
  static roce::TimeNs Bound(const Connection& connection) {
    constexpr roce::TimeNs kMessageNs = 5'000'000;
    constexpr roce::TimeNs kRnrWaits = 10;
    const roce::TimeNs rnr_wait = roce::kRnrTimerNs[connection.min_rnr_timer];
    return 4 * (roce::TimeNs{4096} << connection.timeout) + kRnrWaits * rnr_wait + kMessageNs;
  }

  const roce::TimeNs bound_ns_;
  roce::TimeNs last_;
  uint64_t done_ = 0;
};

}  // namespace roci::sim
