#include "tools/doctor/doctor.h"

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "tools/doctor/confinement.h"
#include "tools/doctor/daemon_facts.h"
#include "tools/doctor/daemon_findings.h"
#include "tools/doctor/machine.h"
#include "tools/doctor/verbs_library.h"
#include "verbs_provider/abi/runtime_dir.h"

namespace roci::tools {
namespace {

Finding MemoryAccess(const DaemonFacts& daemon) {
  MemoryAccessFacts facts = TryMemoryAccess();
  facts.daemon_error = daemon.ErrorOf("process_vm");
  return JudgeMemoryAccess(facts);
}

Finding Userfaultfd(const DaemonFacts& daemon) {
  UserfaultfdFacts facts = TryUserfaultfd();
  facts.daemon_error = daemon.ErrorOf("userfaultfd");
  return JudgeUserfaultfd(facts);
}

Finding Hugepages(const DaemonFacts& daemon) {
  HugepageFacts facts = TryHugepages();
  const nlohmann::json uses = daemon.Running("hugepages");
  if (uses.is_boolean()) facts.daemon_uses_them = uses.get<bool>();
  return JudgeHugepages(facts);
}

Finding Memlock(const DaemonFacts& daemon) {
  MemlockFacts facts = ReadMemlock(daemon.pid);
  facts.may_exceed = daemon.ErrorOf("lock_memory") == 0;
  return JudgeMemlock(facts);
}

Finding Realtime(const DaemonFacts& daemon) {
  RealtimeFacts facts = TryRealtime();
  const nlohmann::json priority = daemon.Running("realtime_priority");
  if (priority.is_number_integer()) facts.daemon_priority = priority.get<int>();
  facts.is_off = daemon.Running("realtime") == "off";
  return JudgeRealtime(facts);
}

Finding PidNamespace(const DaemonFacts& daemon) {
  PidNamespaceFacts facts;
  facts.is_first = IsInFirstPidNamespace();
  if (daemon.is_running()) {
    std::ifstream file(absl::StrCat("/proc/", daemon.pid, "/status"));
    const std::string status{std::istreambuf_iterator<char>(file), {}};
    facts.to_daemon = VisibilityByNumbers(status);
    const nlohmann::json caller = daemon.Running("caller");
    if (caller.is_number_integer()) {
      facts.to_daemon = caller == 0 ? Visibility::kHidden : Visibility::kVisible;
    }
  }
  return JudgePidNamespace(facts);
}

}  // namespace

std::vector<Finding> Examine(const std::string& runtime_dir, const std::string& version) {
  const DaemonFacts daemon = AskForFacts(runtime_dir);
  const bool serves =
      daemon.state == DaemonState::kAnswers || daemon.state == DaemonState::kPrivate;
  const VerbsFacts verbs = TryVerbs(daemon.runtime_dir, serves);
  return {
      JudgeKernel(TryKernel()),
      MemoryAccess(daemon),
      Userfaultfd(daemon),
      Hugepages(daemon),
      JudgeMountNamespace(TryMountNamespace()),
      PidNamespace(daemon),
      JudgeSeccomp(TrySystemCalls()),
      JudgeKernelRdma(TryKernelRdma(serves ? abi::SysfsPath(daemon.runtime_dir) : "")),
      Memlock(daemon),
      JudgeCgroupMemory(ReadCgroupMemory(daemon.pid)),
      JudgeShm(TryShm()),
      Realtime(daemon),
      JudgeCapabilities(daemon),
      JudgeDrivers(daemon),
      JudgeLibrary(verbs),
      JudgePlugin(verbs),
      JudgeDaemon(daemon, version),
      JudgeDevices(verbs),
  };
}

}  // namespace roci::tools
