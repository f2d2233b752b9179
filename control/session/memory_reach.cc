#include "control/session/memory_reach.h"

#include "absl/strings/str_cat.h"

namespace roci::control {
namespace {

constexpr char kSharedMemory[] = "shared memory (memfd, shm, hugetlb)";

bool IsByProcess(const ReachFacts& facts) {
  return facts.is_own_user && facts.is_visible && !facts.is_confined;
}

std::string FasterThanPrivate(const ReachFacts& facts) {
  if (!facts.is_own_user) {
    return absl::StrCat(kSharedMemory, ", or a rocid that runs as the program's user");
  }
  if (!facts.is_visible) {
    return absl::StrCat(kSharedMemory, ", or a program in rocid's PID namespace");
  }
  if (facts.is_confined && !facts.converts) {
    return absl::StrCat(kSharedMemory, ", or a rocid that may call process_vm_readv");
  }
  constexpr char kDevice[] = "a /dev/userfaultfd that rocid can open";
  if (!facts.converts) {
    return absl::StrCat(kSharedMemory, ", or memory.policy = \"map\"",
                        facts.has_userfaultfd ? "" : " and ", facts.has_userfaultfd ? "" : kDevice);
  }
  return facts.has_userfaultfd ? kSharedMemory : absl::StrCat(kSharedMemory, ", or ", kDevice);
}

}  // namespace

const char* WayOf(NotMapped why, const ReachFacts& facts) {
  if (why == NotMapped::kMapped) return "mapped";
  if (why == NotMapped::kOnDisk) return "disk";
  if (why == NotMapped::kHasBlocked) return "calls";
  return IsByProcess(facts) ? "process_vm" : "proc_mem";
}

const char* DescribeWay(NotMapped why, const ReachFacts& facts) {
  if (why == NotMapped::kMapped) return "through a mapping of the same memory";
  if (why == NotMapped::kOnDisk || why == NotMapped::kHasBlocked) {
    return "by system calls on a mapping of the same file";
  }
  return IsByProcess(facts) ? "by process_vm_readv and process_vm_writev"
                            : "by system calls on /proc/PID/mem";
}

const char* ReasonOf(NotMapped why) {
  switch (why) {
    case NotMapped::kMapped:
      break;
    case NotMapped::kOnDisk:
      return "the file is on a disk";
    case NotMapped::kHasBlocked:
      return "mapped memory of the user has blocked an lcore (holes punched into files, or swap)";
    case NotMapped::kGivenUp:
      return "the file was truncated, or the program has forked";
    case NotMapped::kFailed:
      return "the memory could not be mapped";
    case NotMapped::kLimit:
      return "the user's limit of mappings is reached";
    case NotMapped::kFileSystem:
      return "the file's file system may not answer";
    case NotMapped::kNoPrivilege:
      return "the program has no descriptor of the file, and rocid may not open map_files";
    case NotMapped::kNotVisible:
      return "the program has no descriptor of the file, and rocid cannot see its process";
    case NotMapped::kPrivate:
      return "the memory is private";
    case NotMapped::kOnDemand:
      return "the region is on-demand";
    case NotMapped::kPolicy:
      return "memory.policy is \"process_vm\"";
  }
  return "";
}

std::string FasterWith(NotMapped why, const ReachFacts& facts) {
  switch (why) {
    case NotMapped::kMapped:
      break;
    case NotMapped::kOnDisk:
    case NotMapped::kFileSystem:
      return "files on tmpfs or hugetlbfs";
    case NotMapped::kHasBlocked:
      return "files into which no program punches holes, after a restart of rocid";
    case NotMapped::kGivenUp:
      return "registering the memory again";
    case NotMapped::kFailed:
      return kSharedMemory;
    case NotMapped::kLimit:
      return "fewer and larger regions, or a larger limits.user_percent";
    case NotMapped::kNoPrivilege:
      return "a descriptor that the program keeps open, or a rocid with CAP_CHECKPOINT_RESTORE";
    case NotMapped::kNotVisible:
      return "a descriptor that the program keeps open, or a program in rocid's PID namespace";
    case NotMapped::kPrivate:
      return FasterThanPrivate(facts);
    case NotMapped::kOnDemand:
      return "shared memory in a region that is not on-demand";
    case NotMapped::kPolicy:
      return "memory.policy = \"auto\"";
  }
  return "";
}

}  // namespace roci::control
