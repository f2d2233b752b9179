// The command line of rocid.
#pragma once

#include <optional>
#include <string>

#include "control/config/config.h"

namespace roci::control {

struct Options {
  std::string config_file;  // empty: defaults
  std::string runtime_dir;  // empty: abi::RuntimeDir decides
  std::optional<LogLevel> log_level;
  bool check_config = false;
  bool probe = false;
};

// Returns nothing if the process is to exit at once with `exit_status` (after --help, --version or
// a wrong command line, which has been reported on stderr).
std::optional<Options> ParseOptions(int argc, char** argv, int& exit_status);

}  // namespace roci::control
