#include "tools/doctor/confinement.h"

#include <linux/netlink.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/doctor/child.h"
#include "tools/run/file.h"
#include "tools/run/mount_namespace.h"
#include "tools/run/netlink_filter.h"
#include "verbs_provider/abi/stand_in.h"

namespace roci::tools {

// ---- The mount namespace

MountNamespaceFacts TryMountNamespace(const Roots& roots) {
  MountNamespaceFacts facts;
  const ChildEnd end = RunInChild([] {
    const std::string refusal(EnterPrivateMountNamespace().message());
    const bool told = write(STDOUT_FILENO, refusal.data(), refusal.size()) ==
                      static_cast<ssize_t>(refusal.size());
    return refusal.empty() && told ? 0 : 1;
  });
  if (end.status == 0) return facts;
  facts.refusal = end.out.empty() ? "refused" : end.out;
  struct Setting {
    const char* name;
    const char* path;
    uint64_t forbids;
  };
  constexpr Setting kSettings[] = {
      {"kernel.unprivileged_userns_clone", "/sys/kernel/unprivileged_userns_clone", 0},
      {"user.max_user_namespaces", "/sys/user/max_user_namespaces", 0},
      {"user.max_mnt_namespaces", "/sys/user/max_mnt_namespaces", 0},
      {"kernel.apparmor_restrict_unprivileged_userns",
       "/sys/kernel/apparmor_restrict_unprivileged_userns", 1},
  };
  for (const Setting& setting : kSettings) {
    if (ReadNumber(roots.proc + setting.path) == setting.forbids) {
      facts.settings.push_back(absl::StrCat(setting.name, " = ", setting.forbids));
    }
  }
  return facts;
}

Finding JudgeMountNamespace(const MountNamespaceFacts& facts) {
  constexpr char kName[] = "mount_namespace";
  if (facts.refusal.empty()) return Ok(kName, "`roci run` can make one");
  std::string found = facts.refusal;
  if (!facts.settings.empty()) {
    absl::StrAppend(&found, " (", absl::StrJoin(facts.settings, ", "), ")");
  }
  return Slow(kName, found,
              "`roci run` uses SYSFS_PATH and LD_PRELOAD: only programs that load libibverbs and "
              "keep their environment see the devices (not ibstat, not static or setuid programs)",
              facts.settings.empty()
                  ? "container: --cap-add SYS_ADMIN, or a seccomp profile that permits unshare and "
                    "mount"
                  : "as root, change that setting by sysctl");
}

// ---- PID namespaces

bool IsInFirstPidNamespace(const Roots& roots) {
  constexpr ino_t kFirst = 0xEFFFFFFC;  // PROC_PID_INIT_INO of the kernel
  struct stat st;
  return stat((roots.proc + "/self/ns/pid").c_str(), &st) == 0 && st.st_ino == kFirst;
}

Visibility VisibilityByNumbers(const std::string& status) {
  constexpr char kLine[] = "\nNSpid:";
  const size_t at = status.find(kLine);
  if (at == std::string::npos) return Visibility::kUnknown;
  const size_t begin = at + sizeof(kLine) - 1;
  std::istringstream numbers(status.substr(begin, status.find('\n', begin) - begin));
  const auto count = std::distance(std::istream_iterator<pid_t>(numbers), {});
  return count == 1 ? Visibility::kVisible : Visibility::kHidden;
}

Finding JudgePidNamespace(const PidNamespaceFacts& facts) {
  constexpr char kName[] = "pid_namespace";
  constexpr char kCost[] =
      "private memory is accessed by /proc/PID/mem, shared memory without a descriptor is not "
      "mapped, and no raw packets or ports below 1024";
  constexpr char kRemedy[] =
      "run rocid in the programs' PID namespace or in one above it (container: --pid=host or "
      "--pid=container:ID)";
  const char* const own = facts.is_first ? "the machine's first one" : "one of a container";
  switch (facts.to_daemon) {
    case Visibility::kVisible:
      return Ok(kName, absl::StrCat(own, "; rocid sees programs started here"));
    case Visibility::kHidden:
      return Slow(kName, absl::StrCat(own, "; rocid does not see programs started here"), kCost,
                  kRemedy);
    case Visibility::kUnknown:
      return Ok(kName, absl::StrCat(own,
                                    "; rocid runs in another one, and tells only its own user "
                                    "and root whether it sees programs started here"));
    case Visibility::kNoDaemon:
      break;
  }
  return Ok(kName, own);
}

// ---- System call filters

namespace {

struct SystemCall {
  const char* name;
  long number;
  // Arguments with which the call has no effect. The kernel then reports another error than those
  // of filters, or success.
  long arguments[6];
};

const SystemCall kSystemCalls[] = {
    {"memfd_create", SYS_memfd_create, {0, 0, 0, 0, 0, 0}},
    {"pidfd_open", SYS_pidfd_open, {-1, 0, 0, 0, 0, 0}},
    {"process_vm_readv", SYS_process_vm_readv, {0, 0, 0, 0, 0, 1}},
    {"process_vm_writev", SYS_process_vm_writev, {0, 0, 0, 0, 0, 1}},
    {"kcmp", SYS_kcmp, {0, 0, -1, 0, 0, 0}},
    {"unshare", SYS_unshare, {0, 0, 0, 0, 0, 0}},
    {"open_tree", SYS_open_tree, {-1, 0, -1, 0, 0, 0}},
    {"seccomp", SYS_seccomp, {-1, 0, 0, 0, 0, 0}},
    {"sched_setattr", SYS_sched_setattr, {0, 0, -1, 0, 0, 0}},
};

// Filters answer with EPERM or ENOSYS, or end the process.
bool IsRefused(const SystemCall& call) {
  const ChildEnd end = RunInChild([&] {
    const long* a = call.arguments;
    if (syscall(call.number, a[0], a[1], a[2], a[3], a[4], a[5]) != -1) return 0;
    return errno == EPERM || errno == ENOSYS ? 1 : 0;
  });
  return end.status != 0;
}

// The number behind "Seccomp:" in /proc/PID/status.
bool HasFilter(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "Seccomp:")) return line.find_first_of("12") != std::string::npos;
  }
  return false;
}

// Losses without some system calls.
std::string CostOf(const std::vector<std::string>& refused) {
  const auto lacks = [&](const char* name) {
    return std::find(refused.begin(), refused.end(), name) != refused.end();
  };
  std::vector<std::string> costs;
  if (lacks("memfd_create")) costs.push_back("rocid does not start");
  if (lacks("process_vm_readv") || lacks("process_vm_writev")) {
    costs.push_back("a rocid under this filter accesses private memory by /proc/PID/mem, slower");
  }
  if (lacks("unshare") || lacks("open_tree")) {
    costs.push_back("`roci run` has no mount namespace and uses LD_PRELOAD");
  }
  if (lacks("seccomp")) costs.push_back("`roci run` cannot hide the kernel's RDMA netlink");
  if (lacks("pidfd_open") || lacks("kcmp")) {
    costs.push_back("rocid cannot identify programs by their process: fewer rights for them");
  }
  if (lacks("sched_setattr")) costs.push_back("rocid has no real-time priority");
  return absl::StrJoin(costs, "; ");
}

}  // namespace

SeccompFacts TrySystemCalls(const Roots& roots) {
  SeccompFacts facts;
  facts.is_filtered = HasFilter(roots.proc + "/self/status");
  for (const SystemCall& call : kSystemCalls) {
    if (IsRefused(call)) facts.refused.push_back(call.name);
  }
  return facts;
}

Finding JudgeSeccomp(const SeccompFacts& facts) {
  constexpr char kName[] = "seccomp";
  if (facts.refused.empty()) {
    return Ok(kName,
              facts.is_filtered ? "a filter, which permits the system calls needed" : "no filter");
  }
  return Slow(kName,
              absl::StrCat(facts.is_filtered ? "a filter refuses " : "the kernel lacks ",
                           absl::StrJoin(facts.refused, ", ")),
              CostOf(facts.refused),
              facts.is_filtered ? "permit them (container: --security-opt seccomp=PROFILE)"
                                : "a newer kernel, or one with these system calls configured");
}

// ---- RDMA in the kernel

namespace {

bool IsOurs(const std::string& entry) {
  return Exists(absl::StrCat(entry, "/", abi::kSocketAttribute));
}

std::vector<std::string> DevicesIn(const std::string& directory, bool ours) {
  std::vector<std::string> devices;
  for (const std::string& name : ListDirectory(directory)) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (IsDirectory(path) && IsOurs(path) == ours) devices.push_back(name);
  }
  return devices;
}

}  // namespace

KernelRdmaFacts TryKernelRdma(const std::string& sysfs, const Roots& roots) {
  KernelRdmaFacts facts;
  facts.has_netlink = HasNetlink(NETLINK_RDMA);
  facts.devices = DevicesIn(roots.sys + "/class/infiniband", false);
  if (!sysfs.empty()) facts.ours = DevicesIn(sysfs + "/class/infiniband", true);
  if (!facts.has_netlink) return facts;
  const ChildEnd end = RunInChild([] {
    absl::Status status = EnterPrivateMountNamespace();
    if (status.ok()) status = RefuseNetlink(NETLINK_RDMA);
    const std::string refusal(status.message());
    [[maybe_unused]] const ssize_t count = write(STDOUT_FILENO, refusal.data(), refusal.size());
    return status.ok() ? 0 : 1;
  });
  if (end.status != 0) facts.hide_refusal = end.out.empty() ? "refused" : end.out;
  return facts;
}

Finding JudgeKernelRdma(const KernelRdmaFacts& facts) {
  constexpr char kName[] = "kernel_rdma";
  std::vector<std::string> both;
  std::set_intersection(facts.devices.begin(), facts.devices.end(), facts.ours.begin(),
                        facts.ours.end(), std::back_inserter(both));
  const std::string devices = facts.devices.empty()
                                  ? "without devices"
                                  : absl::StrCat("with ", absl::StrJoin(facts.devices, ", "));
  if (!both.empty()) {
    return Missing(
        kName, absl::StrCat("the kernel has devices of the same name: ", absl::StrJoin(both, ", ")),
        "programs see the kernel's devices instead of rocid's",
        "give rocid's devices other names (docs/rocid.toml), or rename the kernel's: "
        "rdma dev set");
  }
  if (!facts.has_netlink)
    return Ok(kName, "the kernel has no RDMA core that hides rocid's devices");
  if (facts.hide_refusal.empty()) {
    return Ok(kName, absl::StrCat("the kernel's RDMA core is there, ", devices,
                                  "; `roci run` hides its netlink"));
  }
  return Slow(kName,
              absl::StrCat("the kernel's RDMA core is there, ", devices,
                           ", and `roci run` cannot hide its netlink: ", facts.hide_refusal),
              "libibverbs finds rocid's devices only while the plugin is preloaded (LD_PRELOAD)",
              "unload the modules (rmmod rdma_rxe ib_uverbs rdma_cm ib_core), or permit mount "
              "namespaces and seccomp");
}

}  // namespace roci::tools
