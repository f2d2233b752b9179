// What a thread has had of the processors and whether it wants one, as the kernel tells
// (/proc/PID/task/TID/schedstat and stat).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace roci::dataplane {

// Since the thread began.
struct ProcessorTime {
  uint64_t ran_ns = 0;
  uint64_t waited_ns = 0;  // it could have run, but others had the processor
};

// Of a thread of this process, as of its last switch or of the last tick if it runs (some
// milliseconds). Nothing where the kernel does not count (CONFIG_SCHED_INFO) or the
// thread is gone. Reads a file: not on an lcore.
std::optional<ProcessorTime> ReadProcessorTime(pid_t thread);

// Whether a thread of this process sleeps in the kernel; one that runs or waits for a processor
// does not (proc_pid_stat(5), field 3). True also of one that cannot be looked at. Reads a file.
bool Sleeps(pid_t thread);

}  // namespace roci::dataplane
