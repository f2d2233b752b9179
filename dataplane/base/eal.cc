#include "dataplane/base/eal.h"

#include <rte_alarm.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "dataplane/base/limits.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kDefaultHeapMib = 64;

struct InterruptWork {
  const std::function<void()>& run;
  std::atomic<bool> is_done = false;
};

void RunQueued(void* argument) {
  auto* work = static_cast<InterruptWork*>(argument);
  work->run();
  work->is_done = true;
}

// Sets the alarm for RunQueued. An interrupt handler may have set alarms after the one that runs
// this function. The interrupt thread runs all due alarms in order before it handles interrupts
// again. RunQueued is due when this function returns, so it runs after those alarms and before any
// further handler.
void QueueBehindAlarms(void* argument) {
  constexpr unsigned kUntilDueUs = 10;
  rte_eal_alarm_set(1, RunQueued, argument);
  rte_delay_us_block(kUntilDueUs);
}

constexpr uint64_t kBytesPerKilobyte = 1024;  // "kB" in /sys

// Bytes of free hugepages of any size.
uint64_t FreeHugePageBytes() {
  uint64_t total = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/kernel/mm/hugepages", error)) {
    unsigned long kilobytes = 0;
    unsigned long pages = 0;
    std::ifstream(entry.path() / "free_hugepages") >> pages;
    if (std::sscanf(entry.path().filename().c_str(), "hugepages-%lukB", &kilobytes) == 1) {
      total += uint64_t{kilobytes} * kBytesPerKilobyte * pages;
    }
  }
  return total;
}

// Free bytes of hugepages from which on HugePages::kAuto uses them.
constexpr uint64_t kMinHugePageBytes = uint64_t{256} << 20;

bool WantHugePages(const EalOptions& options) {
  if (options.hugepages != HugePages::kAuto) return options.hugepages == HugePages::kOn;
  return FreeHugePageBytes() >= kMinHugePageBytes;
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// EAL lcore 0 is the control thread; 1 and up are dataplane lcores.
std::string LcoreMap(const EalOptions& options) {
  const std::string anywhere = absl::StrCat("(", absl::StrJoin(AllowedCpus(), ","), ")");
  std::string map = absl::StrCat("0@", anywhere);
  for (uint32_t i = 0; i < options.lcores; ++i) {
    absl::StrAppend(&map, ",", i + 1, "@",
                    options.cpus.empty() ? anywhere : absl::StrCat(options.cpus[i]));
  }
  return map;
}

std::vector<std::string> Arguments(const EalOptions& options) {
  std::vector<std::string> args = {"rocid", "--lcores", LcoreMap(options), "--main-lcore", "0"};
  args.push_back("--file-prefix");
  args.push_back(options.file_prefix.empty() ? absl::StrCat("roci", getpid())
                                             : options.file_prefix);
  if (WantHugePages(options)) {
    args.push_back("--in-memory");
    if (options.memory_mib != 0) args.insert(args.end(), {"-m", absl::StrCat(options.memory_mib)});
  } else {
    const uint32_t heap =
        options.memory_mib != 0 ? options.memory_mib : kDefaultHeapMib + options.frames_mib;
    args.insert(args.end(), {"--no-huge", "--no-shconf", "-m", absl::StrCat(heap)});
  }
  if (options.pci_devices.empty()) args.push_back("--no-pci");
  for (const std::string& device : options.pci_devices) args.insert(args.end(), {"-a", device});
  args.push_back(options.telemetry ? "--telemetry" : "--no-telemetry");
  args.push_back(
      absl::StrCat("--log-level=", options.log_level.empty() ? "*:warning" : options.log_level));
  args.insert(args.end(), options.extra_arguments.begin(), options.extra_arguments.end());
  return args;
}

}  // namespace

absl::Status StartEal(const EalOptions& options) {
  if (options.lcores < 1 || options.lcores > kMaxLcores) {
    return absl::InvalidArgumentError(absl::StrCat("lcores must be 1 to ", kMaxLcores));
  }
  if (!options.cpus.empty() && options.cpus.size() != options.lcores) {
    return absl::InvalidArgumentError("one processor per lcore must be named, or none");
  }
  std::vector<std::string> args = Arguments(options);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0) {
    return absl::InternalError(absl::StrCat("DPDK does not start (", rte_strerror(rte_errno),
                                            "), see `roci doctor`: ", absl::StrJoin(args, " ")));
  }
  return absl::OkStatus();
}

bool RunOnInterruptThread(const std::function<void()>& work) {
  constexpr useconds_t kNapUs = 100;
  constexpr int kMostNaps = 300'000;  // thirty seconds
  InterruptWork queued{.run = work};
  if (rte_eal_alarm_set(1, QueueBehindAlarms, &queued) != 0) return false;
  for (int i = 0; i < kMostNaps && !queued.is_done; ++i) usleep(kNapUs);
  // Waits for a function that is running.
  rte_eal_alarm_cancel(QueueBehindAlarms, &queued);
  rte_eal_alarm_cancel(RunQueued, &queued);
  return queued.is_done;
}

bool EalHasHugePages() { return rte_eal_has_hugepages() != 0; }

}  // namespace roci::dataplane
