// The subcommands of roci. Each has a file of its own that adds it; roci_main.cc calls them in the
// order in which --help lists them.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace roci::tools {

// What every subcommand shares. Outlives the parse; a subcommand's callback sets exit_status.
struct CommandContext {
  std::string runtime_dir;  // --runtime-dir as given; empty if not (abi::RuntimeDir decides)
  int exit_status = 0;
};

void AddRunCommand(CLI::App& app, CommandContext& context);
void AddShowCommand(CLI::App& app, CommandContext& context);
void AddCaptureCommand(CLI::App& app, CommandContext& context);
void AddImpairCommand(CLI::App& app, CommandContext& context);
void AddDecodeCommand(CLI::App& app, CommandContext& context);
void AddAddrCommand(CLI::App& app, CommandContext& context);
void AddRouteCommand(CLI::App& app, CommandContext& context);

}  // namespace roci::tools
