#include "control/loop/log.h"

#include <rte_log.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "control/loop/event_loop.h"
#include "control/loop/log_limiter.h"

namespace roci::control {
namespace {

constexpr std::array kAreaNames = {"roci.daemon", "roci.session", "roci.neighbours"};
std::array<int, kAreaNames.size()> area_types = {RTE_LOGTYPE_USER1, RTE_LOGTYPE_USER1,
                                                 RTE_LOGTYPE_USER1};

std::mutex limiter_mutex;
LogLimiter limiter;

uint32_t RteLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return RTE_LOG_ERR;
    case LogLevel::kWarning:
      return RTE_LOG_WARNING;
    case LogLevel::kNotice:
      return RTE_LOG_NOTICE;
    case LogLevel::kInfo:
      return RTE_LOG_INFO;
    case LogLevel::kDebug:
      return RTE_LOG_DEBUG;
  }
  return RTE_LOG_DEBUG;
}

}  // namespace

void InitLog(LogLevel level) {
  rte_openlog_stream(stderr);
  for (size_t i = 0; i < kAreaNames.size(); ++i) {
    const int type = rte_log_register_type_and_pick_level(kAreaNames[i], RteLevel(level));
    if (type < 0) continue;
    area_types[i] = type;
    rte_log_set_level(static_cast<uint32_t>(type), RteLevel(level));
  }
}

void Log(LogArea area, LogLevel level, const char* format, ...) {
  const LogLimiter::Kind kind{format, static_cast<uint32_t>(area_types[static_cast<size_t>(area)]),
                              RteLevel(level)};
  if (!rte_log_can_log(kind.type, kind.level)) return;
  const roce::TimeNs now = MonotonicNow();
  LogSuppressed(now);
  {
    const std::lock_guard lock(limiter_mutex);
    if (!limiter.Admit(kind, now)) return;
  }
  // Formatted here so that the line is written with one call.
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof(line), format, arguments);
  va_end(arguments);
  rte_log(kind.level, kind.type, "rocid: %s\n", line);
}

void LogSuppressed(roce::TimeNs now) {
  const std::lock_guard lock(limiter_mutex);
  while (const std::optional<LogLimiter::Suppressed> held = limiter.TakeSuppressed(now)) {
    rte_log(held->kind.level, held->kind.type, "rocid: %llu similar suppressed: \"%s\"\n",
            static_cast<unsigned long long>(held->count), held->kind.format);
  }
}

roce::TimeNs NextLogSuppressed() {
  const std::lock_guard lock(limiter_mutex);
  return limiter.Next();
}

}  // namespace roci::control
