// Memory, processors and the kernel of this machine, as a program of this user gets them: each is
// tried, then judged. A Try function has effects only until it returns; a Judge function is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/finding.h"

namespace roci::tools {

// Where the probes look. Tests make such trees.
struct Roots {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string dev = "/dev";
};

// The first number in a file; nothing: no such file, or no number there.
std::optional<uint64_t> ReadNumber(const std::string& path);

// ---- The kernel: memory files with sealed sizes, of which all queues are made

struct KernelFacts {
  std::string name;     // "Linux 6.1.0 x86_64"
  int memfd_error = 0;  // errno of making and sealing one
};
KernelFacts TryKernel();
Finding JudgeKernel(const KernelFacts& facts);

// ---- Access to private memory of a program

struct MemoryAccessFacts {
  int process_vm_error = 0;         // errno of process_vm_readv between two processes of this user
  int proc_mem_error = 0;           // errno of reading and writing /proc/self/mem
  std::optional<int> daemon_error;  // of process_vm_readv by rocid; nothing: not known
};
MemoryAccessFacts TryMemoryAccess();
Finding JudgeMemoryAccess(const MemoryAccessFacts& facts);

// ---- userfaultfd(2) for page faults of the kernel

struct UserfaultfdFacts {
  int call_error = 0;               // errno of userfaultfd(2)
  int device_error = 0;             // errno of opening /dev/userfaultfd
  std::optional<int> daemon_error;  // the same by rocid; nothing: not known
};
UserfaultfdFacts TryUserfaultfd(const Roots& roots = {});
Finding JudgeUserfaultfd(const UserfaultfdFacts& facts);

// ---- Hugepages

struct HugepageSize {
  uint64_t kib = 0;
  uint64_t free = 0;   // pages
  int take_error = 0;  // errno of taking one of the free pages
};
struct HugepageFacts {
  std::vector<HugepageSize> sizes;
  std::optional<bool> daemon_uses_them;  // nothing: not known
};
HugepageFacts TryHugepages(const Roots& roots = {});
Finding JudgeHugepages(const HugepageFacts& facts);

// ---- /dev/shm

struct ShmFacts {
  int error = 0;  // errno of making a file there
  uint64_t free_bytes = 0;
};
ShmFacts TryShm(const Roots& roots = {});
Finding JudgeShm(const ShmFacts& facts);

// ---- Limits. `pid` is the daemon's, or 0 for this process.

struct MemlockFacts {
  uint64_t bytes = 0;       // UINT64_MAX: no limit
  bool may_exceed = false;  // CAP_IPC_LOCK
  bool is_daemons = false;
};
MemlockFacts ReadMemlock(pid_t pid, const Roots& roots = {});
Finding JudgeMemlock(const MemlockFacts& facts);

// Of the control group (version 1 or 2) and those above it, the one with the least room.
struct CgroupMemoryFacts {
  uint64_t limit_bytes = UINT64_MAX;  // UINT64_MAX: no limit
  uint64_t used_bytes = 0;
  bool is_daemons = false;
};
CgroupMemoryFacts ReadCgroupMemory(pid_t pid, const Roots& roots = {});
Finding JudgeCgroupMemory(const CgroupMemoryFacts& facts);

// ---- Real-time priority

struct RealtimeFacts {
  int priority = 0;  // the highest of SCHED_FIFO up to rocid's that this user gets
  std::optional<int> daemon_priority;  // of rocid's lcores; nothing: not known
  bool is_off = false;                 // rocid's configuration says so
};
RealtimeFacts TryRealtime();
Finding JudgeRealtime(const RealtimeFacts& facts);

}  // namespace roci::tools
