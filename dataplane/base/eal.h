// Starts and stops DPDK's environment the way a daemon without privileges needs it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace roci::dataplane {

// Dataplane lcores at most: their number fits the low bits of a QPN (see QpnSpace in qpn_space.h).
inline constexpr uint32_t kMaxLcores = 16;

enum class HugePages : uint8_t { kAuto, kOn, kOff };

struct EalOptions {
  uint32_t lcores = 1;    // dataplane lcores, 1..kMaxLcores; the caller's thread is one more
  std::vector<int> cpus;  // lcore i runs on cpus[i]; empty: all float over every allowed processor
  uint32_t memory_mib = 0;  // of DPDK's own heap without hugepages; 0: as much as the pool needs
  HugePages hugepages = HugePages::kAuto;
  uint32_t frames_mib = 0;                   // of the heap for frames, where it is not memory_mib
  std::string file_prefix;                   // empty: one of its own per process
  std::vector<std::string> pci_devices;      // devargs to probe; none: no PCI bus at all
  std::string log_level;                     // for --log-level; empty: warnings and worse
  std::vector<std::string> extra_arguments;  // appended as they are
};

// Initialises the EAL; the calling thread becomes its main lcore (the control thread). Once per
// process, and until it ends: rte_eal_cleanup would free the memory of what drivers leave with
// DPDK's interrupt thread (memif_listener.h), which goes on, and nothing of the EAL's is in a file
// system that it would remove. Fails with InvalidArgument for options out of range and Internal if
// DPDK refuses.
absl::Status StartEal(const EalOptions& options);

// Runs `work` on DPDK's interrupt thread and waits for it. Interrupts that the thread has handled
// before are handled completely: the alarms that their handlers set have run as well. False: the
// thread did not get to it within thirty seconds, and `work` never runs. Control thread.
bool RunOnInterruptThread(const std::function<void()>& work);

// Whether StartEal found (and uses) hugepages.
bool EalHasHugePages();

}  // namespace roci::dataplane
