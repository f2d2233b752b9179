// roci run PROGRAM ARGS...
#include <CLI/CLI.hpp>
#include <memory>

#include "tools/commands.h"
#include "tools/run/run_program.h"

namespace roci::tools {

namespace {

class RunFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: roci run [OPTIONS] [--] PROGRAM [ARGS...]\n";
  }
};

}  // namespace

void AddRunCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run",
                                         "Run a program that sees the daemon's devices below "
                                         "/sys/class/infiniband and /dev/infiniband");
  command->footer(
      "The program replaces roci: its exit status is the program's; 125 if the devices cannot be\n"
      "shown, 126 if the program cannot be executed, 127 if there is none.");
  command->formatter(std::make_shared<RunFormatter>());
  // Options end at the program's name: what follows is the program's.
  command->fallthrough(false);
  command->prefix_command();
  command->add_option("--runtime-dir", context.runtime_dir, "The daemon's runtime directory");
  command->add_flag("-v,--verbose", options->verbose, "Say how the devices are shown");
  command->add_option("--plugin", options->plugin, "The libibverbs provider, libroci-rdmavN.so");
  CLI::Option* require = command->add_flag("--require-namespace", options->require_namespace,
                                           "Fail where a mount namespace is refused");
  command
      ->add_flag("--no-namespace", options->no_namespace,
                 "Use SYSFS_PATH and LD_PRELOAD rather than a mount namespace")
      ->excludes(require);
  command->callback([command, options, &context] {
    options->runtime_dir = context.runtime_dir;
    options->command = command->remaining();
    if (options->command.empty()) throw CLI::RequiredError("PROGRAM");
    context.exit_status = RunProgram(*options);
  });
}

}  // namespace roci::tools
