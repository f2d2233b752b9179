// The daemon's log: lines on stderr through DPDK's rte_log, with types of our own, so that
// --log-level and EAL's --log-level=roci.*:debug both rule.
#pragma once

#include <cstdint>

#include "roce/work.h"

namespace roci::control {

enum class LogArea : uint8_t { kDaemon, kSession, kNeighbours };
enum class LogLevel : uint8_t { kError, kWarning, kNotice, kInfo, kDebug };

// Sends rte_log to stderr and sets our types' level. Before the EAL starts, and once more after it
// has set the levels of all types.
void InitLog(LogLevel level);

// One line; the newline is added. Of lines with the same format only some are said (LogLimiter):
// apps and peers can provoke most of them. Any thread, but never on the hot path.
void Log(LogArea area, LogLevel level, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// Says how many lines were held back, once their period is over at `now`; kNever for all of them.
// For the loop's deadlines.
void LogSuppressed(roce::TimeNs now);
roce::TimeNs NextLogSuppressed();

}  // namespace roci::control
