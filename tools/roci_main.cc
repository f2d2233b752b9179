// roci: the command-line tool. commands.h has its subcommands.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
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

// The option of `command` that `argument` ("-v", "--plugin=FILE") names; null: no such option.
const CLI::Option* FindOption(const CLI::App& command, const std::string& argument) {
  const bool is_long = argument.starts_with("--");
  return command.get_option_no_throw(is_long ? argument.substr(0, argument.find('='))
                                             : argument.substr(0, 2));
}

// Works around CLI11. It passes arguments after "--" to the outermost command, so the "--" of `roci
// run -- PROGRAM` is removed (a later "--" of the program stays). It takes an unknown option of
// `roci run` as the program, and its message for an unknown command lists no commands; this
// function throws the errors instead.
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

// Whether all of standard output is written. A reader that closes it early is no failure.
bool IsWritten() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  pollfd output{STDOUT_FILENO, 0, 0};
  poll(&output, 1, 0);
  if ((output.revents & POLLERR) != 0) return true;  // a pipe without a reader (pipe(7))
  // After an earlier failure there is nothing left to flush, which would tell the reason.
  std::fprintf(stderr, "roci: cannot write standard output (is the disk full?)\n");
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app;
  roci::tools::CommandContext context;
  roci::tools::DeclareCommands(app, context);
  try {
    std::vector<std::string> arguments = Prepare(app, argc, argv);
    std::reverse(arguments.begin(), arguments.end());  // CLI::App::parse requires reverse order
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return IsWritten() || context.exit_status != 0 ? context.exit_status : 1;
}
