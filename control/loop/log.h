// The daemon's log: lines on stderr through DPDK's rte_log, with our own log types, so that both
// --log-level and the EAL's --log-level=roci.*:debug apply.
#pragma once

#include <cstdint>

#include "roce/work.h"

namespace roci::control {

enum class LogArea : uint8_t { kDaemon, kSession, kNeighbours };
enum class LogLevel : uint8_t { kError, kWarning, kNotice, kInfo, kDebug };

// Sends rte_log to stderr and sets the level of our types. Call before the EAL starts, and again
// afterwards, since the EAL sets the levels of all types.
void InitLog(LogLevel level);

// Writes one line; the newline is added. Lines with the same format are rate-limited (LogLimiter),
// since programs and peers can provoke most of them. Thread-safe; never on the hot path.
void Log(LogArea area, LogLevel level, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

// Reports the numbers of suppressed lines whose period is over at `now` (kNever: all of them). For
// the loop's deadlines.
void LogSuppressed(roce::TimeNs now);
roce::TimeNs NextLogSuppressed();

}  // namespace roci::control
