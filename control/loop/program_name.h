// The name of a process, for log lines and faults.
#pragma once

#include <sys/types.h>

#include <string>

namespace roci::control {

// As in ps -o comm; "?": the process is gone, or not visible in the daemon's PID namespace.
std::string ProgramName(pid_t pid);

}  // namespace roci::control
