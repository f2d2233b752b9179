#include "tools/doctor/machine.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "control/loop/unique_fd.h"
#include "dataplane/base/thread_priority.h"
#include "tools/doctor/child.h"
#include "tools/run/file.h"

namespace roci::tools {
namespace {

using control::UniqueFd;

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;

std::string Mib(uint64_t bytes) { return absl::StrCat(bytes / kMiB, " MiB"); }

// The directory of a process in /proc; `pid` 0: this process.
std::string ProcessDir(pid_t pid, const Roots& roots) {
  return pid == 0 ? roots.proc + "/self" : absl::StrCat(roots.proc, "/", pid);
}

const char* Whose(bool is_daemons) { return is_daemons ? "of rocid" : "of this user"; }

}  // namespace

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// ---- The kernel

KernelFacts TryKernel() {
  KernelFacts facts;
  utsname system = {};
  uname(&system);
  facts.name = absl::StrCat(system.sysname, " ", system.release, " ", system.machine);
  const UniqueFd file(memfd_create("roci-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid() || ftruncate(file.get(), 1) != 0 ||
      fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    facts.memfd_error = errno;
  }
  return facts;
}

Finding JudgeKernel(const KernelFacts& facts) {
  if (facts.memfd_error == 0) return Ok("kernel", facts.name);
  return Fatal("kernel",
               absl::StrCat(facts.name, ", memfd_create and its seals do not work: ",
                            std::strerror(facts.memfd_error)),
               "rocid cannot share queues with programs",
               "permit memfd_create and fcntl in the system call filter of the container");
}

// ---- Access to private memory

namespace {

// errno of reading the memory of a sibling process, which has permitted it as the plugin does.
int TryProcessVm() {
  static volatile uint32_t word = 0;
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) != 0) return errno;
  const UniqueFd reader(ready[0]), writer(ready[1]);
  const pid_t program = fork();
  if (program < 0) return errno;
  if (program == 0) {
    word = 1;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    const bool told = write(writer.get(), "r", 1) == 1;
    if (told) pause();
    _exit(0);
  }
  char byte;
  const bool began = read(reader.get(), &byte, 1) == 1;
  const ChildEnd end = RunInChild([&] {
    uint32_t seen = 0;
    const iovec local{&seen, sizeof(seen)};
    const iovec remote{const_cast<uint32_t*>(&word), sizeof(word)};
    if (process_vm_readv(program, &local, 1, &remote, 1, 0) != sizeof(seen)) return errno;
    return seen == 1 ? 0 : EIO;
  });
  kill(program, SIGKILL);
  waitpid(program, nullptr, 0);
  return !began ? EIO : end.status < 0 ? EPERM : end.status;
}

int TryProcMem() {
  const UniqueFd memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  if (!memory.valid()) return errno;
  volatile uint32_t word = 1;
  uint32_t seen = 0, changed = 2;
  const auto at = static_cast<off_t>(reinterpret_cast<uintptr_t>(&word));
  if (pread(memory.get(), &seen, sizeof(seen), at) != sizeof(seen)) return errno;
  if (pwrite(memory.get(), &changed, sizeof(changed), at) != sizeof(changed)) return errno;
  return seen == 1 && word == 2 ? 0 : EIO;
}

}  // namespace

MemoryAccessFacts TryMemoryAccess() {
  return {.process_vm_error = TryProcessVm(), .proc_mem_error = TryProcMem(), .daemon_error = {}};
}

Finding JudgeMemoryAccess(const MemoryAccessFacts& facts) {
  constexpr char kName[] = "memory_access";
  const int error = facts.daemon_error.value_or(facts.process_vm_error);
  if (facts.proc_mem_error != 0) {
    return Fatal(kName, absl::StrCat("/proc/self/mem: ", std::strerror(facts.proc_mem_error)),
                 "no program can open a device, since rocid cannot reach its memory",
                 "mount /proc read-write, without restrictions on /proc/PID/mem (kernel parameter "
                 "proc_mem.force_override)");
  }
  if (error == 0) {
    return Ok(kName, "process_vm_readv and /proc/PID/mem reach private memory");
  }
  return Slow(kName,
              absl::StrCat("process_vm_readv", facts.daemon_error ? " by rocid: " : ": ",
                           std::strerror(error)),
              "rocid accesses private memory (malloc) by /proc/PID/mem, which is slower for long "
              "messages",
              "permit process_vm_readv and process_vm_writev in the system call filter (container: "
              "--cap-add SYS_PTRACE), or run rocid outside of it");
}

// ---- userfaultfd

UserfaultfdFacts TryUserfaultfd(const Roots& roots) {
  UserfaultfdFacts facts;
  const UniqueFd call(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC)));
  if (!call.valid()) facts.call_error = errno;
  const UniqueFd device(open((roots.dev + "/userfaultfd").c_str(), O_RDWR | O_CLOEXEC));
  if (!device.valid()) facts.device_error = errno;
  return facts;
}

Finding JudgeUserfaultfd(const UserfaultfdFacts& facts) {
  constexpr char kName[] = "userfaultfd";
  if (facts.call_error == 0) return Ok(kName, "the system call works");
  if (facts.device_error == 0) return Ok(kName, "/dev/userfaultfd works");
  if (facts.daemon_error == 0) return Ok(kName, "rocid can open /dev/userfaultfd for programs");
  std::string found = absl::StrCat("userfaultfd(2): ", std::strerror(facts.call_error),
                                   "; /dev/userfaultfd: ", std::strerror(facts.device_error));
  if (facts.daemon_error) {
    absl::StrAppend(&found, "; by rocid: ", std::strerror(*facts.daemon_error));
  }
  return Slow(kName, found,
              "memory.policy = \"map\" has no effect: rocid accesses private memory by system "
              "calls (nothing else needs userfaultfd)",
              "as root: sysctl vm.unprivileged_userfaultfd=1, or let rocid's user open "
              "/dev/userfaultfd (Linux 6.1; container: --device /dev/userfaultfd)");
}

// ---- Hugepages

namespace {

constexpr uint64_t kWantedHugepageBytes = 256 * kMiB;  // as in dataplane/base/eal.cc

// errno of taking one page as DPDK does; 0: it worked.
int TakeHugepage(uint64_t kib) {
  const auto log2 = static_cast<unsigned>(63 - __builtin_clzll(kib * kKiB));
  const UniqueFd file(
      memfd_create("roci-doctor", MFD_CLOEXEC | MFD_HUGETLB | log2 << MFD_HUGE_SHIFT));
  if (!file.valid()) return errno;
  // Allocates, so that a lack of pages is an error here instead of a SIGBUS later.
  return fallocate(file.get(), 0, 0, static_cast<off_t>(kib * kKiB)) == 0 ? 0 : errno;
}

}  // namespace

HugepageFacts TryHugepages(const Roots& roots) {
  HugepageFacts facts;
  const std::string directory = roots.sys + "/kernel/mm/hugepages";
  for (const std::string& name : ListDirectory(directory)) {
    unsigned long kib = 0;
    if (std::sscanf(name.c_str(), "hugepages-%lukB", &kib) != 1) continue;
    HugepageSize size = {.kib = kib};
    size.free = ReadNumber(absl::StrCat(directory, "/", name, "/free_hugepages")).value_or(0);
    if (size.free != 0) size.take_error = TakeHugepage(kib);
    facts.sizes.push_back(size);
  }
  return facts;
}

Finding JudgeHugepages(const HugepageFacts& facts) {
  constexpr char kName[] = "hugepages";
  constexpr char kCost[] =
      "rocid keeps frames in ordinary pages (more TLB misses), and PCI ports on uio_pci_generic "
      "do not work";
  uint64_t usable = 0;
  std::string refused;
  for (const HugepageSize& size : facts.sizes) {
    if (size.take_error == 0) usable += size.kib * kKiB * size.free;
    if (size.take_error != 0) {
      absl::StrAppend(&refused, "; pages of ", size.kib, " KiB: ", std::strerror(size.take_error));
    }
  }
  if (facts.daemon_uses_them == true) return Ok(kName, "rocid uses them");
  const bool enough = usable >= kWantedHugepageBytes;
  const std::string found = absl::StrCat(Mib(usable), " free", refused);
  if (enough && facts.daemon_uses_them == false) {
    return Slow(kName, found + ", but rocid runs without", kCost,
                "restart rocid (its configuration: hugepages = \"auto\")");
  }
  if (enough) return Ok(kName, found);
  return Slow(kName, absl::StrCat(found, ", rocid wants ", Mib(kWantedHugepageBytes)), kCost,
              refused.empty() ? "as root: echo 160 > /proc/sys/vm/nr_hugepages, then start rocid"
                              : "raise the limits of the control group (hugetlb) or container");
}

// ---- /dev/shm

ShmFacts TryShm(const Roots& roots) {
  ShmFacts facts;
  const std::string path = absl::StrCat(roots.dev, "/shm/roci-doctor.", getpid());
  const UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) {
    facts.error = errno;
    return facts;
  }
  unlink(path.c_str());
  facts.error = posix_fallocate(file.get(), 0, static_cast<off_t>(4 * kKiB));
  struct statvfs system = {};
  if (fstatvfs(file.get(), &system) == 0) facts.free_bytes = system.f_bavail * system.f_frsize;
  return facts;
}

Finding JudgeShm(const ShmFacts& facts) {
  constexpr char kName[] = "shm";
  constexpr char kRemedy[] = "mount -o remount,size=1G /dev/shm as root; container: --shm-size=1g";
  constexpr uint64_t kWanted = 128 * kMiB;
  if (facts.error != 0) {
    return Missing(kName, absl::StrCat("/dev/shm: ", std::strerror(facts.error)),
                   "programs that share memory by shm_open (MPI, UCX) fail; rocid needs none",
                   "mount a tmpfs there: mount -t tmpfs tmpfs /dev/shm");
  }
  const std::string found = absl::StrCat(Mib(facts.free_bytes), " free in /dev/shm");
  if (facts.free_bytes >= kWanted) return Ok(kName, found);
  return Slow(kName, found,
              "MPI and UCX between processes of this machine may fail or be slow; rocid needs none",
              kRemedy);
}

// ---- Limits

namespace {

// The soft limit of locked memory in /proc/PID/limits.
uint64_t MemlockOf(const std::string& path) {
  constexpr char kLine[] = "Max locked memory";
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, kLine)) continue;
    std::istringstream rest(line.substr(sizeof(kLine) - 1));
    uint64_t bytes = 0;
    return rest >> bytes ? bytes : UINT64_MAX;
  }
  return UINT64_MAX;
}

// Narrows `facts` by a control group, if that has less room.
void Consider(const std::string& directory, const char* limit_file, const char* used_file,
              CgroupMemoryFacts& facts) {
  const std::optional<uint64_t> limit = ReadNumber(absl::StrCat(directory, "/", limit_file));
  if (!limit) return;  // "max" is no number
  const uint64_t used = ReadNumber(absl::StrCat(directory, "/", used_file)).value_or(0);
  const auto left = [](uint64_t all, uint64_t taken) { return all - std::min(all, taken); };
  if (left(*limit, used) >= left(facts.limit_bytes, facts.used_bytes)) return;
  facts.limit_bytes = *limit;
  facts.used_bytes = used;
}

// A line of /proc/PID/cgroup: "0::/PATH" (version 2), or "4:memory:/PATH" (version 1).
void ConsiderAll(const std::string& line, const Roots& roots, CgroupMemoryFacts& facts) {
  // More than any machine has: version 1 writes "no limit" as a number.
  constexpr uint64_t kMost = uint64_t{1} << 62;
  const bool is_second = absl::StartsWith(line, "0::/");
  const bool is_first = absl::StrContains(line, ":memory:/");
  if (!is_first && !is_second) return;
  std::string path = line.substr(line.find(":/") + 1);
  const std::string top = roots.sys + (is_second ? "/fs/cgroup" : "/fs/cgroup/memory");
  for (;;) {
    Consider(top + path, is_second ? "memory.max" : "memory.limit_in_bytes",
             is_second ? "memory.current" : "memory.usage_in_bytes", facts);
    if (path.empty()) break;
    path.erase(path.rfind('/'));
  }
  if (facts.limit_bytes >= kMost) facts.limit_bytes = UINT64_MAX;
}

}  // namespace

MemlockFacts ReadMemlock(pid_t pid, const Roots& roots) {
  return {.bytes = MemlockOf(ProcessDir(pid, roots) + "/limits"), .is_daemons = pid != 0};
}

Finding JudgeMemlock(const MemlockFacts& facts) {
  constexpr char kName[] = "memlock";
  constexpr uint64_t kWanted = 128 * kMiB;  // DPDK's heap and frames of one lcore
  if (facts.may_exceed) return Ok(kName, "no limit for rocid (CAP_IPC_LOCK)");
  if (facts.bytes == UINT64_MAX)
    return Ok(kName, absl::StrCat("no limit ", Whose(facts.is_daemons)));
  const std::string found =
      absl::StrCat("limit ", Whose(facts.is_daemons), ": ", facts.bytes / kKiB, " KiB");
  if (facts.bytes >= kWanted) return Ok(kName, found);
  return Slow(kName, found,
              "ports on PCI devices (vfio-pci), which lock their memory, do not start (registered "
              "memory is not locked)",
              "LimitMEMLOCK=infinity in rocid's unit, or ulimit -l unlimited before it starts");
}

CgroupMemoryFacts ReadCgroupMemory(pid_t pid, const Roots& roots) {
  CgroupMemoryFacts facts;
  facts.is_daemons = pid != 0;
  std::ifstream file(ProcessDir(pid, roots) + "/cgroup");
  for (std::string line; std::getline(file, line);) ConsiderAll(line, roots, facts);
  return facts;
}

Finding JudgeCgroupMemory(const CgroupMemoryFacts& facts) {
  constexpr char kName[] = "cgroup_memory";
  // A daemon with two devices takes 100 MiB; the rest is for queues.
  constexpr uint64_t kWanted = 256 * kMiB;
  if (facts.limit_bytes == UINT64_MAX) {
    return Ok(kName, absl::StrCat("no limit ", Whose(facts.is_daemons)));
  }
  const uint64_t left = facts.limit_bytes - std::min(facts.limit_bytes, facts.used_bytes);
  const std::string found = absl::StrCat(Mib(left), " of ", Mib(facts.limit_bytes),
                                         " left in the control group ", Whose(facts.is_daemons));
  if (left >= kWanted) return Ok(kName, found);
  return Slow(kName, found,
              "creating queues fails, or the kernel ends rocid or a program for lack of memory",
              "raise memory.max of the control group (container: --memory; unit: MemoryMax=)");
}

// ---- Real-time priority

RealtimeFacts TryRealtime() {
  const ChildEnd end = RunInChild([] {
    dataplane::ThreadPriority priority;
    priority.Take(dataplane::RealtimeUse::kAuto, dataplane::kGuardPriority, 0);
    return priority.realtime_priority();
  });
  return {.priority = std::max(end.status, 0), .daemon_priority = {}};
}

Finding JudgeRealtime(const RealtimeFacts& facts) {
  constexpr char kName[] = "realtime";
  constexpr char kCost[] = "programs that poll can keep rocid from a processor for seconds";
  constexpr char kRemedy[] =
      "grant rocid CAP_SYS_NICE (setcap cap_sys_nice+ep), or RLIMIT_RTPRIO of 3 (unit: "
      "LimitRTPRIO=3; shell: ulimit -r 3)";
  if (facts.daemon_priority) {
    if (*facts.daemon_priority != 0) return Ok(kName, "rocid's lcores have real-time priority");
    if (facts.is_off) {
      return Slow(kName, "rocid's configuration turns it off", kCost, "realtime = \"auto\"");
    }
    return Slow(kName, "rocid's lcores have ordinary priority", kCost, kRemedy);
  }
  if (facts.priority >= dataplane::kGuardPriority) {
    return Ok(kName, "a rocid of this user gets real-time priority");
  }
  return Slow(kName,
              facts.priority == 0
                  ? "a rocid of this user gets ordinary priority"
                  : absl::StrCat("a rocid of this user gets real-time priority up to ",
                                 facts.priority, " of ", dataplane::kGuardPriority),
              kCost, kRemedy);
}

}  // namespace roci::tools
