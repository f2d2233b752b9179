// Says in words how the daemon accesses a program's registered memory, why not in the fastest way,
// and what would be faster: for the log and `roci show`. Pure functions.
#pragma once

#include <cstdint>
#include <string>

namespace roci::control {

// Why a region, or a part of it, is not mapped in the daemon, or not accessed through its mapping.
// Of the parts of a region the one with the greatest value counts.
enum class NotMapped : uint8_t {
  kMapped,       // mapped
  kOnDisk,       // mapped, but pages may have to be read from a disk
  kHasBlocked,   // mapped, but the user's mapped memory has blocked an lcore
  kGivenUp,      // no longer mapped: the file was truncated, or the program has forked
  kFailed,       // a system call failed
  kLimit,        // the user has no mappings or addresses left
  kFileSystem,   // the file's file system may not answer
  kNoPrivilege,  // the program passed no descriptor, and the daemon may not open map_files
  kNotVisible,   // the program passed no descriptor, and the daemon cannot see its process
  kPrivate,      // private memory
  kOnDemand,     // IBV_ACCESS_ON_DEMAND
  kPolicy,       // memory.policy is "process_vm"
};

// Properties of program and daemon that decide the kind of access.
struct ReachFacts {
  bool is_own_user = false;      // the program runs as the daemon's user
  bool is_visible = false;       // the daemon's PID namespace shows its process
  bool is_confined = false;      // a system call filter refuses process_vm_readv to the daemon
  bool converts = false;         // memory.policy is "map"
  bool has_userfaultfd = false;  // the daemon can open /dev/userfaultfd
  bool has_blocked = false;      // mapped memory of the user has blocked an lcore
};

// One word: "mapped", "process_vm", "proc_mem" (/proc/PID/mem), or system calls on the daemon's
// mapping: "disk" (of a file on a disk), "calls" (of any other file).
const char* WayOf(NotMapped why, const ReachFacts& facts);
// "by process_vm_readv and process_vm_writev"
const char* DescribeWay(NotMapped why, const ReachFacts& facts);
// "the memory is private"; empty for kMapped.
const char* ReasonOf(NotMapped why);
// "shared memory (memfd, shm, hugetlb)"; empty for kMapped.
std::string FasterWith(NotMapped why, const ReachFacts& facts);

}  // namespace roci::control
