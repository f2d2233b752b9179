// The subcommands of roci. Each is in its own file.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace roci::tools {

// State that all subcommands share. Outlives the parse; a subcommand's callback sets exit_status.
struct CommandContext {
  std::string runtime_dir;  // --runtime-dir; empty: not given (see abi::RuntimeDir)
  int exit_status = 0;
};

// In the order of --help. tools/meson.build lists their files.
// clang-format off
#define ROCI_COMMANDS(X)                                                        \
  X(Run) X(Show) X(Top) X(Doctor) X(Capture) X(Trace) X(Impair) X(Fault)        \
  X(Link) X(Device) X(Event) X(Test) X(Decode) X(Check) X(Addr) X(Route) X(Cdi)
// clang-format on

// AddRunCommand and so on: each declares its subcommand.
#define ROCI_DECLARE_COMMAND(name) void Add##name##Command(CLI::App& app, CommandContext& context);
ROCI_COMMANDS(ROCI_DECLARE_COMMAND)
#undef ROCI_DECLARE_COMMAND

// Declares roci's options and all subcommands.
void DeclareCommands(CLI::App& app, CommandContext& context);

}  // namespace roci::tools
