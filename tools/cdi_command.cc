// roci cdi: makes the devices available to containers.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tools/commands.h"
#include "tools/run/cdi.h"
#include "tools/run/daemon_directory.h"
#include "tools/run/file.h"
#include "tools/run/find_plugin.h"

namespace roci::tools {
namespace {

struct CdiOptions {
  std::string output = kCdiPath;
  std::string plugin;
};

absl::StatusOr<std::string> Generate(const CdiOptions& options, const std::string& runtime_dir) {
  absl::StatusOr<std::string> directory = DirectoryOfDaemon(runtime_dir);
  if (!directory.ok()) return directory.status();
  CdiSource source;
  source.runtime_dir = *std::move(directory);
  absl::StatusOr<Plugins> plugins = FindPlugins(options.plugin);
  if (!plugins.ok()) return plugins.status();
  source.plugins = *std::move(plugins);
  return CdiFile(source);
}

int Run(const CdiOptions& options, const std::string& runtime_dir) {
  const absl::StatusOr<std::string> file = Generate(options, runtime_dir);
  if (!file.ok()) {
    std::fprintf(stderr, "roci: %s\n", std::string(file.status().message()).c_str());
    return 1;
  }
  if (options.output == "-") {
    return std::fwrite(file->data(), 1, file->size(), stdout) == file->size() ? 0 : 1;
  }
  const absl::Status status = ReplaceFile(options.output, *file);
  if (!status.ok()) {
    std::fprintf(stderr, "roci: cannot write %s: %s\n", options.output.c_str(),
                 std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s: podman run --device %s=%s IMAGE ibv_devinfo\n", options.output.c_str(), kCdiKind,
              kCdiAll);
  return 0;
}

}  // namespace

void AddCdiCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<CdiOptions>();
  CLI::App* command = app.add_subcommand(
      "cdi", "Write the Container Device Interface file with which containers get the devices");
  command->footer(
      absl::StrCat("Container engines read it when they create a container with e.g. --device ",
                   kCdiKind, "=roci0\n(one device) or ", kCdiKind, "=", kCdiAll,
                   ". The image needs libibverbs, and nothing of Rocinante.\n"
                   "Write it again when devices were added, the plugins were updated, or the "
                   "daemon uses another\n"
                   "runtime directory."));
  command->add_option("-o,--output", options->output, "File to replace; - prints it")
      ->capture_default_str();
  command->add_option("--plugin", options->plugin,
                      "Path of one of the libibverbs providers libroci-rdmavN.so; those beside it "
                      "are used, too");
  command->callback(
      [options, &context] { context.exit_status = Run(*options, context.runtime_dir); });
}

}  // namespace roci::tools
