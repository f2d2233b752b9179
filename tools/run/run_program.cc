// Makes the devices visible to a program by a mount namespace or the environment, then executes it.
#include "tools/run/run_program.h"

#include <linux/netlink.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tools/run/check_program.h"
#include "tools/run/daemon_directory.h"
#include "tools/run/environment.h"
#include "tools/run/file.h"
#include "tools/run/find_plugin.h"
#include "tools/run/mount_namespace.h"
#include "tools/run/netlink_filter.h"
#include "tools/run/netlink_shim.h"
#include "tools/run/program.h"
#include "tools/run/show_devices.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::tools {
namespace {

constexpr int kCannotPrepare = 125;
constexpr int kCannotExecute = 126;
constexpr int kNoProgram = 127;

void Complain(const std::string& message) { std::fprintf(stderr, "roci: %s\n", message.c_str()); }

// The inode of this process's user namespace; 0 if there is no /proc.
ino_t UserNamespace() {
  struct stat st;
  return ::stat("/proc/self/ns/user", &st) == 0 ? st.st_ino : 0;
}

// Result of Prepare.
struct Found {
  std::string runtime_dir;
  std::string sysfs;
  Plugins plugins;
  Program program;
};

absl::Status PrepareNamespace(const Found& found) {
  const ino_t outside = UserNamespace();
  absl::Status status = EnterPrivateMountNamespace();
  bool needs_driver_variable = false;
  if (status.ok()) status = ShowDevices(found.sysfs, found.plugins.driver, &needs_driver_variable);
  if (status.ok() && HasNetlink(NETLINK_RDMA)) status = RefuseNetlink(NETLINK_RDMA);
  if (!status.ok()) return status;
  RemoveDevicesFromEnvironment();
  if (!found.program.gains_privilege) {
    if (needs_driver_variable) status = NameDriver(found.plugins.driver);
    return status;
  }
  if (needs_driver_variable) {
    return absl::FailedPreconditionError(absl::StrCat(
        found.program.path, " is set-user-ID or has capabilities, so libibverbs ignores the ",
        "environment there, and this system has no /etc/libibverbs.d"));
  }
  if (UserNamespace() != outside) {
    Complain(absl::StrCat(found.program.path,
                          " is set-user-ID or has capabilities: it runs without ",
                          "these privileges here. Start roci run as root, or within that program"));
  }
  return absl::OkStatus();
}

// Without a namespace there is no /dev/infiniband: the plugin intercepts the calls of libibverbs
// (verbs_provider/preload.c). Works for programs that use libibverbs and keep their environment;
// tools that read /sys themselves do not see the devices.
absl::Status PrepareEnvironment(const Found& found) {
  if (found.program.gains_privilege) {
    return absl::FailedPreconditionError(absl::StrCat(
        found.program.path,
        " is set-user-ID or has capabilities, so it ignores the environment by ",
        "which it would find the devices without a mount namespace. Start roci run as root"));
  }
  const std::string preload = found.plugins.Folder() + "/libroci-preload.so";
  if (preload.find_first_of(" :;\t\n") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("without a mount namespace the plugin's path must be free of spaces, ':' and "
                     "';': ",
                     found.plugins.Folder()));
  }
  if (::access(preload.c_str(), R_OK) != 0) {
    return absl::ErrnoToStatus(
        errno, absl::StrCat("cannot read ", preload, ", which belongs to the plugins"));
  }
  RemoveDevicesFromEnvironment();
  absl::Status status = Export("SYSFS_PATH", found.sysfs);
  if (status.ok()) status = NameDriver(found.plugins.driver);
  if (status.ok() && CanPreload(found.program)) status = Preload(preload);
  return status;
}

absl::StatusOr<Found> Find(const RunOptions& options) {
  const absl::StatusOr<std::string> runtime_dir = AwaitDaemon(options.runtime_dir, options.wait_s);
  if (!runtime_dir.ok()) return runtime_dir.status();
  absl::StatusOr<Plugins> plugins = FindPlugins(options.plugin);
  if (!plugins.ok()) return plugins.status();
  const std::string sysfs = abi::SysfsPath(*runtime_dir);
  if (!IsDirectory(sysfs + "/class/infiniband_verbs")) {
    return absl::NotFoundError(absl::StrCat("the daemon at ", *runtime_dir, " has no device tree: ",
                                            sysfs, " does not exist or is not readable"));
  }
  return Found{*runtime_dir, sysfs, *std::move(plugins), InspectProgram(options.command[0])};
}

absl::Status ShowFound(const RunOptions& options, const Found& found) {
  if (!options.no_namespace) {
    const absl::Status status = PrepareNamespace(found);
    if (options.verbose) {
      Complain(
          status.ok()
              ? absl::StrCat("devices of ", found.runtime_dir, " are visible in a mount namespace")
              : absl::StrCat("no mount namespace (", status.message(),
                             "): falling back to SYSFS_PATH (`roci doctor` has the cost)"));
    }
    if (status.ok() || options.require_namespace) return status;
  }
  return PrepareEnvironment(found);
}

absl::Status Prepare(const RunOptions& options) {
  const absl::StatusOr<Found> found = Find(options);
  if (!found.ok()) return found.status();
  absl::Status status = CheckProgram(found->program, found->plugins);
  if (!status.ok()) return status;
  const std::string warning = WarningFor(found->program, found->plugins);
  if (!warning.empty()) Complain(warning);
  if (options.verbose && found->program.links_libibverbs) {
    Complain(absl::StrCat(found->program.path, " loads ", found->program.libibverbs,
                          " (private ABI ", found->program.private_abi, ")"));
  }
  if (!found->program.gains_privilege) {
    status = Export(abi::kRuntimeDirVariable, found->runtime_dir);
    if (!status.ok()) return status;
  }
  status = ShowFound(options, *found);
  const bool can_preload = CanPreload(found->program) && !found->program.gains_privilege;
  if (!status.ok() || options.no_netlink || !can_preload) return status;
  // Without the library, programs find the devices, but rdma(8) does not.
  const absl::Status netlink = PreloadNetlinkShim(found->plugins.Folder());
  if (!netlink.ok() && options.verbose) {
    Complain(absl::StrCat("no RDMA netlink: ", netlink.message()));
  }
  return status;
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
