// The plugin's entry points for libibverbs: registers the driver, matches devices and opens them.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "verbs_provider/abi/stand_in.h"
#include "verbs_provider/base/allocate.h"
#include "verbs_provider/base/generation.h"
#include "verbs_provider/cm/rdma_cm.h"
#include "verbs_provider/intercept/intercept.h"
#include "verbs_provider/verbs/context.h"
#include "verbs_provider/verbs/objects.h"

namespace roci::provider {
namespace {

// Reads the path of the daemon's socket from the device's directory in sysfs. Only rocid creates
// that file, so a device of another driver never matches, whatever its name.
bool ReadSocketPath(const verbs_sysfs_dev* sysfs, char* path, size_t size) {
  char file[sizeof(sysfs->ibdev_path) + sizeof(abi::kSocketAttribute) + 1];
  snprintf(file, sizeof(file), "%s/%s", sysfs->ibdev_path, abi::kSocketAttribute);
  const int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = read(fd, path, size - 1);
  close(fd);
  if (n <= 0) return false;
  path[n] = '\0';
  path[strcspn(path, "\n")] = '\0';
  return path[0] == '/';
}

bool MatchDevice(verbs_sysfs_dev* sysfs) {
  char path[sizeof(VerbsDevice::socket_path)];
  return ReadSocketPath(sysfs, path, sizeof(path));
}

verbs_device* AllocDevice(verbs_sysfs_dev* sysfs) {
  auto* device = Allocate<VerbsDevice>();
  if (device == nullptr) return nullptr;
  if (!ReadSocketPath(sysfs, device->socket_path, sizeof(device->socket_path))) {
    Free(device);
    return nullptr;
  }
  // The socket, not its directory: a program in a chroot could escape through a directory.
  device->socket.Hold(open(device->socket_path, O_PATH | O_CLOEXEC));
  AddDevice(device);
  return &device->vdev;
}

void UninitDevice(verbs_device* vdev) {
  auto* device = reinterpret_cast<VerbsDevice*>(vdev);
  RemoveDevice(device);
  device->socket.Close();
  Free(device);
}

// Any uverbs ABI version matches: the plugin uses only the uverbs calls that interception answers.
const verbs_device_ops kDeviceOps = {
    .name = "roci",
    .match_min_abi_version = 0,
    .match_max_abi_version = UINT32_MAX,
    .match_table = nullptr,
    .static_providers = nullptr,
    .match_device = MatchDevice,
    .alloc_context = AllocContext,
    .import_context = ImportContext,
    .alloc_device = AllocDevice,
    .uninit_device = UninitDevice,
};

__attribute__((constructor)) void RegisterDriver() {
  // Without interception, libibverbs would send some calls to the placeholder device file.
  if (!InstallInterception(ContextHandlers())) return;
  if (RegisterWithLibibverbs(&kDeviceOps)) ServeRdmaCm();
}

}  // namespace
}  // namespace roci::provider
