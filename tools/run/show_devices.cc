// Mounts the devices' entries in /sys, /dev and /etc.
#include "tools/run/show_devices.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/run/file.h"
#include "tools/run/mount_namespace.h"
#include "verbs_provider/abi/stand_in.h"

namespace roci::tools {
namespace {

constexpr char kClass[] = "/sys/class";
constexpr char kDevices[] = "/dev/infiniband";
constexpr char kDriverDirectory[] = "/etc/libibverbs.d";
constexpr char kDriverFile[] = "roci.driver";
// A link to the plugins' folder if their path has characters that a driver file cannot contain.
constexpr char kPluginDirectory[] = "roci";

bool IsOurs(const std::string& entry) {
  return Exists(absl::StrCat(entry, "/", abi::kSocketAttribute));
}

bool IsStandIn(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISCHR(st.st_mode) &&
         st.st_rdev == makedev(abi::kStandInMajor, abi::kStandInMinor);
}

// Mounts `live`, which follows the daemon's devices, at /sys/class/NAME. If the kernel has devices
// of this class: its devices and the current devices of the daemon.
absl::Status ShowClass(const std::string& live, const std::string& name) {
  const std::string target = absl::StrCat(kClass, "/", name);
  const auto is_kernels = [&target](const std::string& entry) {
    const std::string path = absl::StrCat(target, "/", entry);
    return IsDirectory(path) && !IsOurs(path);
  };
  const std::vector<std::string> present = ListDirectory(target);
  if (std::none_of(present.begin(), present.end(), is_kernels)) return BindMount(live, target);

  absl::Status status = MirrorDirectory(
      target, [&](const std::string& entry) { return !IsOurs(absl::StrCat(target, "/", entry)); });
  for (const std::string& entry : ListDirectory(live)) {
    const std::string from = absl::StrCat(live, "/", entry);
    const std::string to = absl::StrCat(target, "/", entry);
    if (!status.ok() || !IsDirectory(from) || Exists(to)) continue;
    if (::mkdir(to.c_str(), 0755) != 0) return absl::ErrnoToStatus(errno, to);
    status = BindMount(from, to);
  }
  return status;
}

// Mounts class/misc/rdma_cm if the daemon has it and the kernel does not.
absl::Status ShowRdmaCm(const std::string& live_class) {
  const std::string live = live_class + "/misc/rdma_cm";
  const std::string target = absl::StrCat(kClass, "/misc/rdma_cm");
  const bool kernel_has_it =
      Exists("/dev/infiniband/rdma_cm") && !IsStandIn("/dev/infiniband/rdma_cm");
  if (!IsDirectory(live) || kernel_has_it) return absl::OkStatus();
  absl::Status status = EnsureDirectories(kClass, {"misc"});
  if (status.ok()) status = EnsureDirectories(absl::StrCat(kClass, "/misc"), {"rdma_cm"});
  if (status.ok()) status = BindMount(live, target);
  return status;
}

// Character devices that fail every write and ioctl, under the names that libibverbs opens. Bind
// mounts, since device nodes cannot be created in a user namespace.
absl::Status ShowNodes(const std::vector<std::string>& nodes) {
  if (!IsStandIn(abi::kStandInPath)) {
    return absl::NotFoundError(absl::StrCat(abi::kStandInPath, " is not the expected device"));
  }
  absl::Status status = EnsureDirectories("/dev", {"infiniband"});
  if (status.ok()) {
    status = MirrorDirectory(kDevices, [](const std::string& name) {
      return !IsStandIn(absl::StrCat(kDevices, "/", name));
    });
  }
  for (const std::string& node : nodes) {
    const std::string path = absl::StrCat(kDevices, "/", node);
    if (!status.ok() || Exists(path)) continue;
    status = WriteFile(path, "");
    if (status.ok()) status = BindMount(abi::kStandInPath, path);
  }
  return status;
}

// libibverbs splits driver lines at white space.
bool FitsDriverFile(const std::string& path) {
  return path.find_first_of(" \t\n") == std::string::npos;
}

absl::Status ShowDriver(const std::string& driver) {
  absl::Status status = MirrorDirectory(kDriverDirectory, [](const std::string& name) {
    return name != kDriverFile && name != kPluginDirectory;
  });
  if (!status.ok()) return status;
  std::string name = driver;
  if (!FitsDriverFile(name)) {
    const std::string link = absl::StrCat(kDriverDirectory, "/", kPluginDirectory);
    const size_t slash = driver.rfind('/');
    if (::symlink(driver.substr(0, slash).c_str(), link.c_str()) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", link));
    }
    name = link + driver.substr(slash);
  }
  return WriteFile(absl::StrCat(kDriverDirectory, "/", kDriverFile),
                   absl::StrCat("driver ", name, "\n"));
}

}  // namespace

absl::Status ShowDevices(const std::string& sysfs, const std::string& driver,
                         bool* needs_driver_variable) {
  const std::string live = sysfs + "/class";
  std::vector<std::string> nodes;
  for (const std::string& name : ListDirectory(live + "/infiniband_verbs")) {
    if (IsDirectory(absl::StrCat(live, "/infiniband_verbs/", name))) nodes.push_back(name);
  }
  if (IsDirectory(live + "/misc/rdma_cm")) nodes.push_back("rdma_cm");

  absl::Status status = EnsureDirectories(kClass, {"infiniband", "infiniband_verbs"});
  for (const char* name : {"infiniband", "infiniband_verbs"}) {
    if (status.ok()) status = ShowClass(absl::StrCat(live, "/", name), name);
  }
  if (status.ok()) status = ShowRdmaCm(live);
  if (status.ok()) status = ShowNodes(nodes);
  *needs_driver_variable = !IsDirectory(kDriverDirectory);
  if (status.ok() && !*needs_driver_variable) status = ShowDriver(driver);
  return status;
}

}  // namespace roci::tools
