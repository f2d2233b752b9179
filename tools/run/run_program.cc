// Makes the devices visible to a program by a mount namespace or the environment, then executes it.
#include "tools/run/run_program.h"

#include <linux/netlink.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tools/run/daemon_directory.h"
#include "tools/run/file.h"
#include "tools/run/find_plugin.h"
#include "tools/run/mount_namespace.h"
#include "tools/run/netlink_filter.h"
#include "tools/run/show_devices.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::tools {
namespace {

constexpr int kCannotPrepare = 125;
constexpr int kCannotExecute = 126;
constexpr int kNoProgram = 127;

void Complain(const std::string& message) {
  std::fprintf(stderr, "roci run: %s\n", message.c_str());
}

absl::Status Export(const char* name, const std::string& value) {
  if (::setenv(name, value.c_str(), 1) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot set ", name));
}

// Prepends `value` to a list in an environment variable.
absl::Status ExportFirst(const char* name, const std::string& value) {
  const char* rest = std::getenv(name);
  return Export(name, rest == nullptr || *rest == '\0' ? value : absl::StrCat(value, ":", rest));
}

absl::Status PrepareNamespace(const std::string& sysfs, const std::string& plugin) {
  absl::Status status = EnterPrivateMountNamespace();
  bool needs_driver_variable = false;
  if (status.ok()) status = ShowDevices(sysfs, plugin, &needs_driver_variable);
  if (status.ok() && needs_driver_variable)
    status = ExportFirst("RDMAV_DRIVERS", DriverName(plugin));
  if (status.ok() && HasNetlink(NETLINK_RDMA)) status = RefuseNetlink(NETLINK_RDMA);
  if (status.ok()) ::unsetenv("SYSFS_PATH");
  return status;
}

// Without a namespace there is no /dev/infiniband: the preloaded plugin intercepts the calls of
// libibverbs (verbs_provider/intercept/intercept.h). Works for programs that use libibverbs and
// keep their environment; tools that read /sys themselves do not see the devices.
absl::Status PrepareEnvironment(const std::string& sysfs, const std::string& plugin) {
  if (plugin.find_first_of(" :;\t\n") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("without a mount namespace the plugin's path must be free of spaces, ':' and "
                     "';': ",
                     plugin));
  }
  absl::Status status = Export("SYSFS_PATH", sysfs);
  if (status.ok()) status = ExportFirst("RDMAV_DRIVERS", DriverName(plugin));
  if (status.ok()) status = ExportFirst("LD_PRELOAD", plugin);
  return status;
}

absl::Status Prepare(const RunOptions& options) {
  const absl::StatusOr<std::string> runtime_dir = DirectoryOfDaemon(options.runtime_dir);
  if (!runtime_dir.ok()) return runtime_dir.status();
  const absl::StatusOr<std::string> plugin = FindPlugin(options.plugin);
  if (!plugin.ok()) return plugin.status();
  const std::string sysfs = abi::SysfsPath(*runtime_dir);
  if (!IsDirectory(sysfs + "/class/infiniband_verbs")) {
    return absl::NotFoundError(absl::StrCat("the daemon at ", *runtime_dir, " has no device tree: ",
                                            sysfs, " does not exist or is not readable"));
  }
  absl::Status status = Export(abi::kRuntimeDirVariable, *runtime_dir);
  if (!status.ok()) return status;
  if (!options.no_namespace) {
    status = PrepareNamespace(sysfs, *plugin);
    if (options.verbose) {
      Complain(status.ok()
                   ? absl::StrCat("devices of ", *runtime_dir, " are visible in a mount namespace")
                   : absl::StrCat("no mount namespace (", status.message(),
                                  "): falling back to SYSFS_PATH (`roci doctor` has the cost)"));
    }
    if (status.ok() || options.require_namespace) return status;
  }
  return PrepareEnvironment(sysfs, *plugin);
}

// Explains an errno of execvp if its text is not sufficient.
std::string HintOf(const std::string& program, int error) {
  if (error != EACCES) return "";
  if (IsDirectory(program)) return " (it is a directory)";
  if (program.find('/') != std::string::npos && ::access(program.c_str(), F_OK) == 0) {
    return " (it is not executable for this user: chmod +x, or run its interpreter with it)";
  }
  return " (this user may not search a directory of its path, or of $PATH)";
}

}  // namespace

int RunProgram(const RunOptions& options) {
  const absl::Status status = Prepare(options);
  if (!status.ok()) {
    Complain(absl::StrCat(status.message(), "; `roci doctor` checks this machine"));
    return kCannotPrepare;
  }
  std::vector<char*> arguments;
  for (const std::string& argument : options.command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  Complain(absl::StrCat("cannot run ", options.command[0], ": ", std::strerror(error),
                        HintOf(options.command[0], error)));
  return error == ENOENT ? kNoProgram : kCannotExecute;
}

}  // namespace roci::tools
