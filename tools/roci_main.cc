// roci: the command-line tool. One subcommand per file (commands.h).
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "tools/commands.h"

namespace {

constexpr int kUsageError = 2;

std::string CommandNames(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return names;
}

// The option that `argument` ("-v", "--plugin=FILE") names; null: `command` has none.
const CLI::Option* FindOption(const CLI::App& command, const std::string& argument) {
  const bool is_long = argument.starts_with("--");
  return command.get_option_no_throw(is_long ? argument.substr(0, argument.find('='))
                                             : argument.substr(0, 2));
}

// What CLI11 gets wrong or tells badly: it hands what follows "--" to the outermost command, so
// that of `roci run -- PROGRAM` is taken out (the program's own stay), and it takes unknown options
// of `roci run` for the program. Throws what is to be told.
std::vector<std::string> Prepare(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const CLI::App* command = &app;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      if (command != &app) arguments.erase(arguments.begin() + static_cast<ptrdiff_t>(i));
      break;
    }
    if (argument.starts_with('-')) {
      const CLI::Option* option = FindOption(*command, argument);
      if (option == nullptr) throw CLI::ValidationError("unknown option " + argument);
      if (option->get_expected_min() > 0 && argument.find('=') == std::string::npos) ++i;
      continue;
    }
    if (command != &app) break;
    const auto named =
        app.get_subcommands([&](const CLI::App* each) { return each->get_name() == argument; });
    if (named.empty()) {
      throw CLI::ValidationError("there is no command \"" + argument +
                                 "\"; there are: " + CommandNames(app));
    }
    command = named.front();
    if (argument != "run") break;
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
  roci::tools::AddCaptureCommand(app, context);
  roci::tools::AddImpairCommand(app, context);
  roci::tools::AddDecodeCommand(app, context);
  roci::tools::AddAddrCommand(app, context);
  roci::tools::AddRouteCommand(app, context);
  try {
    std::vector<std::string> arguments = Prepare(app, argc, argv);
    std::reverse(arguments.begin(), arguments.end());  // as CLI::App::parse wants them
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return context.exit_status;
}
