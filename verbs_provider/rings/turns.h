// How a polling thread shares few processors with the other polling threads of its program. Time is
// an argument.
#pragma once

#include <algorithm>
#include <cstdint>

#include "verbs_provider/abi/yield_judge.h"

namespace roci::provider {

/// Decides between yield, sleep and the next poll after an empty poll of a thread.
///
/// A yield is cheapest while few threads want a processor. Beside many threads it is expensive:
/// Linux (since 6.6) charges a whole slice of virtual time for it, which the thread gets back only
/// after all the others have run: 250 ms and more with 34 threads on a processor, most of which a
/// real-time lcore uses. A thread that sleeps keeps its virtual time. So a thread yields only while
/// few others wait, and otherwise sleeps for as long as the turns of the others take.
class Turns {
 public:
  /// Time of polling between two sleeps of a thread.
  static constexpr uint64_t kTurnNs = 50'000;
  static constexpr uint64_t kLongestSleepNs = 2'000'000;
  /// A sleep that ends this late was followed by a wait for a processor. (Timers alone are up to
  /// 50 us late.)
  static constexpr uint64_t kLateNs = 300'000;
  /// Waiting threads for each processor from which on no thread yields.
  static constexpr uint32_t kWaitingPerProcessor = 2;
  /// Sleeps by which a thread first finds out whether it gets a processor in time.
  static constexpr uint32_t kSleepsBeforeYield = 2;

  /// `waiting`: other threads of the program that yield or sleep now. `processors`: those that the
  /// program may use, at least 1.
  bool MayYield(uint32_t waiting, uint32_t processors, uint64_t now_ns) const {
    return waiting < kWaitingPerProcessor * processors && sleeps_in_time_ >= kSleepsBeforeYield &&
           judge_.Allows(now_ns);
  }
  void Yielded(uint64_t begin_ns, uint64_t end_ns) {
    judge_.Took(begin_ns, end_ns);
    if (!judge_.Allows(end_ns)) sleeps_in_time_ = 0;
  }

  /// How long to sleep, ns. 0: poll again, since the last sleep ended less than kTurnNs ago.
  uint64_t SleepNs(uint32_t waiting, uint32_t processors, uint64_t now_ns) const {
    if (now_ns - last_sleep_ns_ < kTurnNs) return 0;
    const uint64_t others_ns = kTurnNs * waiting / processors;
    return std::clamp<uint64_t>(std::min(sleep_ns_, others_ns), 1, kLongestSleepNs);
  }
  /// The thread has slept until `end_ns` for another reason.
  void SleptOtherwise(uint64_t end_ns) { last_sleep_ns_ = end_ns; }
  /// Sleeps become longer while they end late and, more slowly, shorter while they end in time.
  void Slept(uint64_t begin_ns, uint64_t end_ns, uint64_t asked_ns) {
    last_sleep_ns_ = end_ns;
    if (end_ns - begin_ns >= asked_ns + kLateNs) {
      sleeps_in_time_ = 0;
      sleep_ns_ = std::clamp(2 * asked_ns, kTurnNs, kLongestSleepNs);
    } else {
      ++sleeps_in_time_;
      sleep_ns_ = asked_ns - asked_ns / 8;
    }
  }

 private:
  abi::YieldJudge judge_;
  uint64_t last_sleep_ns_ = 0;
  uint64_t sleep_ns_ = 0;
  uint32_t sleeps_in_time_ = 0;
};

}  // namespace roci::provider
