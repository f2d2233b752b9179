// When connections that have not opened a device yet are to be closed. Time is an argument.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "roce/work.h"

namespace roci::control {

class HelloDeadlines {
 public:
  // Time from a connection to its HELLO. A plugin sends it at once; it may wait for its processor.
  static constexpr roce::TimeNs kLimit = 5'000'000'000;

  // Connection `number` came at `now`. Returns what Forget wants.
  roce::TimeNs Add(uint32_t number, roce::TimeNs now) {
    waiting_.emplace(now + kLimit, number);
    return now + kLimit;
  }
  // Also for numbers that are not there any more.
  void Forget(uint32_t number, roce::TimeNs deadline) { waiting_.erase({deadline, number}); }

  // kNever if nobody waits.
  roce::TimeNs Next() const { return waiting_.empty() ? roce::kNever : waiting_.begin()->first; }
  // Takes out the numbers whose time is over.
  std::vector<uint32_t> TakeDue(roce::TimeNs now) {
    std::vector<uint32_t> due;
    while (!waiting_.empty() && waiting_.begin()->first <= now) {
      due.push_back(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
    return due;
  }

 private:
  std::set<std::pair<roce::TimeNs, uint32_t>> waiting_;
};

}  // namespace roci::control
