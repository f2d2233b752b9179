// Warns, once, when other programs keep the lcores from the processors: all RDMA traffic waits
// then.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "dataplane/base/processor_time.h"
#include "dataplane/shard/dataplane.h"
#include "roce/work.h"

namespace roci::control {

// Whether a thread waited too long for a processor. Time is an argument.
class StarvationJudge {
 public:
  // Of the time between two looks.
  static constexpr uint64_t kWaitedPercent = 20;

  // `time`: of `thread`, at `now`. True: it waited for more than kWaitedPercent of the time since
  // the last look. The first look at a thread says nothing.
  bool IsStarved(pid_t thread, const dataplane::ProcessorTime& time, roce::TimeNs now);
  // Of the time between the last two looks, and that time, ns.
  uint64_t waited_ns() const { return waited_ns_; }
  uint64_t elapsed_ns() const { return elapsed_ns_; }

 private:
  pid_t thread_ = 0;
  roce::TimeNs looked_at_ = 0;
  uint64_t total_waited_ns_ = 0;
  uint64_t waited_ns_ = 0;
  uint64_t elapsed_ns_ = 0;
};

// Control thread; looks at a file of each lcore every two seconds, until it has warned.
class LcoreWatch {
 public:
  // `dataplane` outlives this object.
  // `realtime`: what the configuration asks for.
  LcoreWatch(dataplane::Dataplane& dataplane, dataplane::RealtimeUse realtime);

  // For the loop's deadlines.
  roce::TimeNs NextTimeout() const { return next_; }
  void HandleTimeout(roce::TimeNs now);

 private:
  void Warn(uint32_t lcore);
  const char* Advice(uint32_t lcore) const;

  dataplane::Dataplane& dataplane_;
  const dataplane::RealtimeUse realtime_;
  std::vector<StarvationJudge> judges_;
  roce::TimeNs next_ = 0;
};

}  // namespace roci::control
