// Starts DPDK's environment (EAL), for a daemon that may have no privileges.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace roci::dataplane {

// Most dataplane lcores. An lcore's number is in the low bits of its QPNs (qp/qpn_space.h).
inline constexpr uint32_t kMaxLcores = 16;

enum class HugePages : uint8_t { kAuto, kOn, kOff };

struct EalOptions {
  uint32_t lcores = 1;    // dataplane lcores, 1..kMaxLcores; the caller's thread is one more
  std::vector<int> cpus;  // lcore i runs on cpus[i]; empty: all float over every allowed processor
  uint32_t memory_mib = 0;  // DPDK's heap without hugepages; 0: as much as the frame pool needs
  HugePages hugepages = HugePages::kAuto;
  uint32_t frames_mib = 0;                   // heap for frames, if memory_mib does not set the size
  std::string file_prefix;                   // empty: a different one for each process
  std::vector<std::string> pci_devices;      // devargs to probe; none: no PCI bus at all
  std::string log_level;                     // for --log-level; empty: warnings and worse
  std::vector<std::string> extra_arguments;  // appended unchanged
};

// Initialises the EAL; the calling thread becomes its main lcore (the control thread). Called once
// per process. The EAL is never cleaned up: DPDK's interrupt thread keeps running, and
// rte_eal_cleanup would free memory that drivers have registered with it (memif_listener.h). The
// EAL leaves no files behind that a clean-up would remove. InvalidArgument: an option is out of
// range; Internal: DPDK refuses.
absl::Status StartEal(const EalOptions& options);

// Runs `work` on DPDK's interrupt thread and waits for it. The alarms that earlier interrupt
// handlers set have run before. False: the thread did not run it within thirty seconds, and `work`
// never runs. Control thread.
bool RunOnInterruptThread(const std::function<void()>& work);

// Whether the EAL uses hugepages. After StartEal.
bool EalHasHugePages();

}  // namespace roci::dataplane
