#include "control/manage/lcore_watch.h"

#include <optional>
#include <utility>

#include "control/loop/log.h"
#include "roce/qp.h"

namespace roci::control {
namespace {

constexpr roce::TimeNs kPeriod = 2'000'000'000;

}  // namespace

bool StarvationJudge::IsStarved(pid_t thread, const dataplane::ProcessorTime& time,
                                roce::TimeNs now) {
  const bool is_first = std::exchange(thread_, thread) != thread;
  const uint64_t waited_before_ns = std::exchange(total_waited_ns_, time.waited_ns);
  const roce::TimeNs last = std::exchange(looked_at_, now);
  if (is_first) return false;
  waited_ns_ = time.waited_ns - waited_before_ns;
  elapsed_ns_ = now - last;
  return waited_ns_ * 100 > elapsed_ns_ * kWaitedPercent;
}

LcoreWatch::LcoreWatch(dataplane::Dataplane& dataplane, dataplane::RealtimeUse realtime)
    : dataplane_(dataplane), realtime_(realtime), judges_(dataplane.lcore_count()) {}

void LcoreWatch::HandleTimeout(roce::TimeNs now) {
  next_ = now + kPeriod;
  for (uint32_t i = 0; i < judges_.size(); ++i) WarnOfUsers(i);
  for (uint32_t i = 0; i < judges_.size() && !has_warned_; ++i) {
    const pid_t thread = dataplane_.ThreadOf(i).id;
    const auto time = dataplane::ReadProcessorTime(thread);
    if (!time || !judges_[i].IsStarved(thread, *time, now)) continue;
    Warn(i);
    has_warned_ = true;
  }
}

void LcoreWatch::WarnOfUsers(uint32_t lcore) {
  while (const std::optional<uint32_t> account = dataplane_.TakeBlocker(lcore)) {
    Log(LogArea::kDaemon, LogLevel::kWarning,
        "lcore %u slept in an access to mapped memory of user %u (holes punched into its files, "
        "or swap), which delayed all programs. All mapped memory of the user is accessed by "
        "system calls from now on, which is slower; restart rocid to change that",
        lcore, *account);
  }
}

const char* LcoreWatch::Advice(uint32_t lcore) const {
  if (dataplane_.ThreadOf(lcore).realtime_priority != 0) {
    return "Give it its own processor (`pin` in the configuration)";
  }
  if (realtime_ == dataplane::RealtimeUse::kOff) {
    return "Real-time priority is off (`realtime` in the configuration)";
  }
  return "Give rocid real-time priority: CAP_SYS_NICE, or RLIMIT_RTPRIO of 3 (`roci doctor`, "
         "realtime)";
}

void LcoreWatch::Warn(uint32_t lcore) {
  const StarvationJudge& judge = judges_[lcore];
  Log(LogArea::kDaemon, LogLevel::kWarning,
      "lcore %u waited %llu of the last %llu ms for a processor: other programs use the "
      "processors, and RDMA traffic is delayed. %s (`roci show lcores` shows the total; this "
      "warning is not repeated)",
      lcore, static_cast<unsigned long long>(judge.waited_ns() / roce::kNsPerMs),
      static_cast<unsigned long long>(judge.elapsed_ns() / roce::kNsPerMs), Advice(lcore));
}

}  // namespace roci::control
