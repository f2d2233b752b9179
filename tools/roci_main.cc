// roci: the command-line tool. One subcommand per file (commands.h).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "tools/commands.h"

namespace {

constexpr int kUsageError = 2;

// CLI11 hands what follows "--" to the outermost command, so that of `roci run -- PROGRAM` is taken
// out; the program's own stay.
std::vector<std::string> WithoutRunSeparator(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const CLI::App* command = &app;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      if (command != &app) arguments.erase(arguments.begin() + static_cast<ptrdiff_t>(i));
      break;
    }
    if (argument[0] == '-') {
      const CLI::Option* option = command->get_option_no_throw(argument);
      if (option != nullptr && option->get_expected_min() > 0) ++i;
    } else if (command == &app && argument == "run") {
      command = app.get_subcommand("run");
    } else {
      break;
    }
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("roci: tools for Rocinante, an RDMA NIC made of software", "roci");
  app.require_subcommand(1);
  app.set_version_flag("--version", "roci " ROCI_VERSION);
  roci::tools::CommandContext context;
  app.add_option("--runtime-dir", context.runtime_dir,
                 "The daemon's runtime directory (default: $ROCI_RUNTIME_DIR, /run/roci for root, "
                 "$XDG_RUNTIME_DIR/roci or /tmp/roci-UID)");
  app.fallthrough();
  roci::tools::AddRunCommand(app, context);
  roci::tools::AddShowCommand(app, context);
  std::vector<std::string> arguments = WithoutRunSeparator(app, argc, argv);
  std::reverse(arguments.begin(), arguments.end());  // as CLI::App::parse wants them
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return context.exit_status;
}
