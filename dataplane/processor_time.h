// What a thread has had of the processors, as the kernel counts it (/proc/PID/task/TID/schedstat).
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

// Of a thread of this process. Nothing where the kernel does not count (CONFIG_SCHED_INFO) or the
// thread is gone. Reads a file: not on an lcore.
std::optional<ProcessorTime> ReadProcessorTime(pid_t thread);

}  // namespace roci::dataplane
