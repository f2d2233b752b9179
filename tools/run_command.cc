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
                                         "Run a program with the daemon's devices in "
                                         "/sys/class/infiniband and /dev/infiniband");
  command->footer(
      "The program replaces roci. Exit status: that of the program; 125 if the devices cannot be\n"
      "made visible, 126 if the program cannot be executed, 127 if it does not exist.");
  command->formatter(std::make_shared<RunFormatter>());
  // Options of roci end at the program's name; later arguments belong to the program.
  command->fallthrough(false);
  command->prefix_command();
  command->add_option("--runtime-dir", context.runtime_dir, "Runtime directory of the daemon")
      ->type_name("DIR");
  command
      ->add_option("--wait", options->wait_s,
                   "Wait at most this time for the daemon, if it has been started just now")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 86400.0));
  command->add_flag("-v,--verbose", options->verbose, "Print how the devices are made visible");
  command
      ->add_option("--plugin", options->plugin,
                   "Path of one of the plugins, libroci-rdmavN.so, which lie side by side")
      ->type_name("FILE");
  CLI::Option* require = command->add_flag("--require-namespace", options->require_namespace,
                                           "Fail if no mount namespace can be created");
  command
      ->add_flag("--no-namespace", options->no_namespace,
                 "Use SYSFS_PATH and LD_PRELOAD instead of a mount namespace")
      ->excludes(require);
  command->add_flag("--no-netlink", options->no_netlink,
                    "Do not preload the library that answers RDMA netlink (rdma link)");
  command->callback([command, options, &context] {
    options->runtime_dir = context.runtime_dir;
    options->command = command->remaining();
    if (options->command.empty()) throw CLI::RequiredError("PROGRAM");
    context.exit_status = RunProgram(*options);
  });
}

}  // namespace roci::tools
