// The command line of rocid.
#pragma once

#include <optional>
#include <string>

#include "control/config/config.h"

namespace CLI {
class App;
}

namespace roci::control {

struct Options {
  std::string config_file;  // empty: defaults
  std::string runtime_dir;  // empty: abi::RuntimeDir decides
  std::optional<LogLevel> log_level;
  std::optional<MetricsAddress> metrics;
  bool check_config = false;
  bool probe = false;
  bool all_users = false;
};

// Declares rocid's options. `options` is filled in by the parse and outlives it.
void DeclareOptions(CLI::App& app, Options& options);

// Returns nothing if the process is to exit at once with `exit_status` (after --help, --version or
// a wrong command line, which has been reported on stderr).
std::optional<Options> ParseOptions(int argc, char** argv, int& exit_status);

}  // namespace roci::control
