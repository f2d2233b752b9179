#include "control/lcore_watch.h"

#include <utility>

#include "control/log.h"
#include "roce/qp.h"

namespace roci::control {
namespace {

constexpr roce::TimeNs kPeriod = 2'000'000'000;
constexpr uint64_t kNsPerMs = 1'000'000;

}  // namespace

bool StarvationJudge::IsStarved(const dataplane::ProcessorTime& time, roce::TimeNs now) {
  waited_ns_ = time.waited_ns - std::exchange(total_waited_ns_, time.waited_ns);
  const std::optional<roce::TimeNs> last = std::exchange(looked_at_, now);
  return last && waited_ns_ * 100 > (now - *last) * kWaitedPercent;
}

LcoreWatch::LcoreWatch(dataplane::Dataplane& dataplane)
    : dataplane_(dataplane), judges_(dataplane.lcore_count()) {}

void LcoreWatch::HandleTimeout(roce::TimeNs now) {
  next_ = now + kPeriod;
  for (uint32_t i = 0; i < judges_.size(); ++i) {
    const auto time = dataplane::ReadProcessorTime(dataplane_.lcore(i).thread_id());
    if (!time || !judges_[i].IsStarved(*time, now)) continue;
    Warn(i, judges_[i].waited_ns());
    next_ = roce::kNever;
    return;
  }
}

void LcoreWatch::Warn(uint32_t lcore, uint64_t waited_ns) {
  const bool is_realtime = dataplane_.lcore(lcore).realtime_priority() != 0;
  Log(LogArea::kDaemon, LogLevel::kWarning,
      "lcore %u waited %llu of the last %llu ms for a processor: other programs hold the "
      "processors, "
      "and all RDMA traffic waits for it. %s (`roci show lcores` has the sum; this is said once)",
      lcore, static_cast<unsigned long long>(waited_ns / kNsPerMs),
      static_cast<unsigned long long>(kPeriod / kNsPerMs),
      is_realtime ? "Give it a processor of its own (pin, in the configuration)"
                  : "Give rocid real-time priority: CAP_SYS_NICE, or RLIMIT_RTPRIO of 2 "
                    "(docs/rocid.toml, realtime)");
}

}  // namespace roci::control
