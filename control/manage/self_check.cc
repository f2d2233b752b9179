#include "control/manage/self_check.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/if_ether.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "absl/strings/str_cat.h"
#include "control/config/device_limits.h"
#include "control/loop/unique_fd.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/port/port_drivers.h"
#include "memory/mapped_file.h"
#include "verbs_provider/abi/session_head.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

// Virtual ports of docs/ports.md; "packet:NAME" needs no driver.
constexpr const char* kDrivers[] = {"net_af_packet", "net_af_xdp", "net_memif", "net_pcap",
                                    "net_ring",      "net_tap",    "net_vhost", "net_virtio_user"};

int ErrorOf(const UniqueFd& fd) { return fd.valid() ? 0 : errno; }

int OpenError(const char* path) { return ErrorOf(UniqueFd(open(path, O_RDWR | O_CLOEXEC))); }

// EPERM unless the calling thread has the capability.
int CapabilityError(unsigned capability) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return errno;
  return (data[capability / 32].effective >> capability % 32 & 1) != 0 ? 0 : EPERM;
}

// A net_tap port opens the device and makes an interface; that takes the kernel too long to be
// tried here.
int TapError() {
  const int error = OpenError("/dev/net/tun");
  return error != 0 ? error : CapabilityError(CAP_NET_ADMIN);
}

// As for shared memory of a program that has no descriptor of it. Read-only, since KeepPages()
// makes the file immutable.
int MapFilesError(const dataplane::SharedMemory& memory) {
  int error = 0;
  const auto begin = reinterpret_cast<uintptr_t>(memory.data());
  const UniqueFd file(memory::OpenMappingOf(getpid(), geteuid(), getegid(), begin,
                                            begin + memory.size(), false, &error));
  return file.valid() ? 0 : error;
}

int ProcessVmError() {
  char from = 1, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == 1 ? 0 : errno;
}

Json TryThings() {
  Json errors = {
      {"userfaultfd", OpenError("/dev/userfaultfd")},
      {"raw_sockets", ErrorOf(UniqueFd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)))},
      {"tap", TapError()},
      {"process_vm", ProcessVmError()},
      {"lock_memory", CapabilityError(CAP_IPC_LOCK)},
  };
  const absl::StatusOr<dataplane::SharedMemory> memory =
      dataplane::SharedMemory::Create("roci-probe", 1);
  if (!memory.ok()) return errors;
  errors["map_files"] = MapFilesError(*memory);
  errors["keep_pages"] = dataplane::KeepPages(memory->fd()) ? 0 : EPERM;
  return errors;
}

const char* NameOf(dataplane::RealtimeUse use) {
  switch (use) {
    case dataplane::RealtimeUse::kOn:
      return "on";
    case dataplane::RealtimeUse::kOff:
      return "off";
    case dataplane::RealtimeUse::kAuto:
      break;
  }
  return "auto";
}

const char* NameOf(roci_abi_memory_policy policy) {
  switch (policy) {
    case ROCI_ABI_MEMORY_PROCESS_VM:
      return "process_vm";
    case ROCI_ABI_MEMORY_MAP:
      return "map";
    default:
      return "auto";
  }
}

}  // namespace

Json TryMachine() {
  Json drivers = Json::object();
  for (const char* driver : kDrivers) {
    drivers[driver] = dataplane::HasPortDriver(absl::StrCat(driver, "0"));
  }
  drivers["mempool_ring"] = dataplane::HasMempoolDriver();
  return {{"version", kFirmwareVersion},
          {"abi", absl::StrCat(ROCI_ABI_MAJOR, ".", ROCI_ABI_MINOR)},
          {"errors", TryThings()},
          {"drivers", drivers}};
}

Json ProbeDaemon(const Services& services, const Json& request) {
  int priority = std::numeric_limits<int>::max();
  for (uint32_t i = 0; i < services.dataplane.lcore_count(); ++i) {
    priority = std::min(priority, services.dataplane.ThreadOf(i).realtime_priority);
  }
  Json answer = TryMachine();
  answer["running"] = {{"hugepages", services.dataplane.HasHugePages()},
                       {"realtime", NameOf(services.config.daemon.realtime)},
                       {"realtime_priority", priority},
                       {"memory_policy", NameOf(services.config.memory.policy)},
                       {"caller", request.value("caller", 0)}};
  return answer;
}

}  // namespace roci::control
