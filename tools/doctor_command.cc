// roci doctor
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "tools/commands.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/verbs_library.h"

namespace roci::tools {
namespace {

struct DoctorOptions {
  bool json = false;
  bool print_devices = false;
};

int RunDoctor(const DoctorOptions& options, const std::string& runtime_dir) {
  if (options.print_devices) return PrintDevices();
  const std::vector<Finding> findings = Examine(runtime_dir, ROCI_VERSION);
  const std::string text =
      options.json ? DescribeFindings(findings).dump(2) + "\n" : FormatFindings(findings);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return NothingWorks(findings) ? 1 : 0;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor", "Check what this machine gives to daemon and programs, and what the rest costs");
  command->footer(
      "Print a line for each finding: ok, slow (works, but slower or not for everything) or\n"
      "missing; what that costs, and what to do. Each check is tried as the calling user. The\n"
      "daemon reports more to its own user and root. Exit status: 0; 1 if no program can use a\n"
      "device here, and starting rocid would not help.");
  command->add_flag("--json", options->json, "Print JSON");
  command->add_flag("--print-devices", options->print_devices)->group("");
  command->callback(
      [options, &context] { context.exit_status = RunDoctor(*options, context.runtime_dir); });
}

}  // namespace roci::tools
