// The deadlines of connections that have not sent HELLO yet. Time is an argument.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "roce/work.h"

namespace roci::control {

class HelloDeadlines {
 public:
  // Longest time from connect to HELLO. A plugin sends HELLO at once but may wait for a processor.
  static constexpr roce::TimeNs kLimit = 5'000'000'000;

  // Adds connection `number`, accepted at `now`. Returns the deadline, an argument of Forget.
  roce::TimeNs Add(uint32_t number, roce::TimeNs now) {
    waiting_.emplace(now + kLimit, number);
    return now + kLimit;
  }
  // Unknown numbers are ignored.
  void Forget(uint32_t number, roce::TimeNs deadline) { waiting_.erase({deadline, number}); }

  // The earliest deadline; kNever: none.
  roce::TimeNs Next() const { return waiting_.empty() ? roce::kNever : waiting_.begin()->first; }
  // Removes and returns the connections whose deadline has passed.
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
