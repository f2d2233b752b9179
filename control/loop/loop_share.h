// A user's share of the control thread: the handlers of users take turns by time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "roce/work.h"

namespace roci::control {

class EventLoop;

// Deficit round robin: in each round of the loop a share may use kQuantumNs. One that has used more
// (a handler is never interrupted) sits out rounds until it is even, at most kMostRounds: the time
// includes that in which the thread did not get a processor. Control thread only.
class LoopShare {
 public:
  static constexpr roce::TimeNs kQuantumNs = roce::kNsPerMs;
  static constexpr uint64_t kMostRounds = 16;

  // Time that the control thread has used for the share, ns.
  uint64_t used_ns() const { return used_ns_; }
  // Work that the share's handlers have not done themselves.
  void Charge(roce::TimeNs ns) {
    used_ns_ += ns;
    debt_ns_ = std::min(debt_ns_ + ns, kMostRounds * kQuantumNs);
  }

 private:
  friend EventLoop;
  using Watch = uint64_t;

  // Brings the debt up to date. True: the share may be used in `round`, which never goes back.
  bool MayRun(uint64_t round) {
    const uint64_t paid_ns = std::min(debt_ns_ / kQuantumNs, round - round_) * kQuantumNs;
    debt_ns_ -= paid_ns;
    round_ = round;
    return debt_ns_ < kQuantumNs;
  }
  // The next round in which it may, if MayRun(round_) said no.
  uint64_t NextRound() const { return round_ + debt_ns_ / kQuantumNs; }

  uint64_t used_ns_ = 0;
  roce::TimeNs debt_ns_ = 0;
  uint64_t round_ = 0;                 // of debt_ns_
  std::map<uint64_t, Watch> waiting_;  // watches that were ready before the share's turn, in order
  uint64_t last_place_ = 0;            // in waiting_
  size_t wakes_ = 4;                   // watches that are woken at a time
};

}  // namespace roci::control
