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

void AddRunCommand(CLI::App& app, CommandContext& context);
void AddShowCommand(CLI::App& app, CommandContext& context);
void AddTopCommand(CLI::App& app, CommandContext& context);
void AddCaptureCommand(CLI::App& app, CommandContext& context);
void AddImpairCommand(CLI::App& app, CommandContext& context);
void AddFaultCommand(CLI::App& app, CommandContext& context);
void AddLinkCommand(CLI::App& app, CommandContext& context);
void AddEventCommand(CLI::App& app, CommandContext& context);
void AddDecodeCommand(CLI::App& app, CommandContext& context);
void AddCheckCommand(CLI::App& app, CommandContext& context);
void AddAddrCommand(CLI::App& app, CommandContext& context);
void AddRouteCommand(CLI::App& app, CommandContext& context);
void AddDoctorCommand(CLI::App& app, CommandContext& context);
void AddTraceCommand(CLI::App& app, CommandContext& context);
void AddTestCommand(CLI::App& app, CommandContext& context);
void AddCdiCommand(CLI::App& app, CommandContext& context);

// Declares roci's options and all subcommands.
void DeclareCommands(CLI::App& app, CommandContext& context);

}  // namespace roci::tools
