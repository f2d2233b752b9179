// Processor time and scheduling state of a thread (/proc/PID/task/TID/schedstat and stat).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace roci::dataplane {

// Totals since the thread started.
struct ProcessorTime {
  uint64_t ran_ns = 0;
  uint64_t waited_ns = 0;  // runnable, while other threads had the processor
};

// The times of a thread of this process, as of its last context switch, or of the last timer tick
// if it runs. None if the kernel does not count them (CONFIG_SCHED_INFO) or the thread has ended.
// Reads a file: not on an lcore.
std::optional<ProcessorTime> ReadProcessorTime(pid_t thread);

// Whether a thread of this process sleeps in the kernel: its state is neither running nor runnable
// (proc_pid_stat(5), field 3). True also if the state cannot be read. Reads a file.
bool Sleeps(pid_t thread);

}  // namespace roci::dataplane
