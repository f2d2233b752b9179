#include "tools/commands.h"

#include <CLI/CLI.hpp>

namespace roci::tools {

void DeclareCommands(CLI::App& app, CommandContext& context) {
  app.name("roci");
  app.description("roci: command-line tool of Rocinante, an RDMA NIC in software");
  app.require_subcommand(1);
  app.set_version_flag("--version", "roci " ROCI_VERSION);
  app.add_option("--runtime-dir", context.runtime_dir,
                 "Runtime directory of the daemon (default: $ROCI_RUNTIME_DIR, else /run/roci for "
                 "root, else $XDG_RUNTIME_DIR/roci, else /tmp/roci-UID)")
      ->type_name("DIR");
  app.fallthrough();
#define ROCI_ADD_COMMAND(name) Add##name##Command(app, context);
  ROCI_COMMANDS(ROCI_ADD_COMMAND)
#undef ROCI_ADD_COMMAND
}

}  // namespace roci::tools
