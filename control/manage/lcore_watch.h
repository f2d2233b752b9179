// Warns once if other programs keep the lcores from the processors, which delays all RDMA traffic,
// and once for each user whose memory has blocked an lcore.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "dataplane/base/processor_time.h"
#include "dataplane/shard/dataplane.h"
#include "roce/work.h"

namespace roci::control {

// Decides whether a thread waits too long for a processor. Time is an argument.
class StarvationJudge {
 public:
  // Percentage of the time between two calls of IsStarved.
  static constexpr uint64_t kWaitedPercent = 20;

  // `time` is the processor time of `thread` at `now`. True: the thread waited for more than
  // kWaitedPercent of the time since the last call. The first call for a thread returns false.
  bool IsStarved(pid_t thread, const dataplane::ProcessorTime& time, roce::TimeNs now);
  // Time waited between the last two calls, and the time between them, ns.
  uint64_t waited_ns() const { return waited_ns_; }
  uint64_t elapsed_ns() const { return elapsed_ns_; }

 private:
  pid_t thread_ = 0;
  roce::TimeNs looked_at_ = 0;
  uint64_t total_waited_ns_ = 0;
  uint64_t waited_ns_ = 0;
  uint64_t elapsed_ns_ = 0;
};

// Control thread. Looks at each lcore every two seconds, and reads a file of it in /proc until it
// has warned.
class LcoreWatch {
 public:
  // `dataplane` outlives this object. `realtime`: from the configuration.
  LcoreWatch(dataplane::Dataplane& dataplane, dataplane::RealtimeUse realtime);

  // For the loop's deadlines.
  roce::TimeNs NextTimeout() const { return next_; }
  void HandleTimeout(roce::TimeNs now);

 private:
  void WarnOfUsers(uint32_t lcore);
  void Warn(uint32_t lcore);
  const char* Advice(uint32_t lcore) const;

  dataplane::Dataplane& dataplane_;
  const dataplane::RealtimeUse realtime_;
  std::vector<StarvationJudge> judges_;
  bool has_warned_ = false;
  roce::TimeNs next_ = 0;
};

}  // namespace roci::control
