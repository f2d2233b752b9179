// Findings about the daemon: whether it answers, its version, capabilities and drivers. Pure,
// except where noted.
#pragma once

#include <string>

#include "tools/doctor/daemon_facts.h"
#include "tools/doctor/finding.h"

namespace roci::tools {

// `version`: of this program.
Finding JudgeDaemon(const DaemonFacts& facts, const std::string& version);
Finding JudgeCapabilities(const DaemonFacts& facts);
Finding JudgeDrivers(const DaemonFacts& facts);

}  // namespace roci::tools
