// Options of DPDK's environment (EAL).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace roci::dataplane {

enum class HugePages : uint8_t { kAuto, kOn, kOff };

struct EalOptions {
  uint32_t lcores = 1;    // dataplane lcores, 1..kMaxLcores; the caller's thread is one more
  std::vector<int> cpus;  // lcore i runs on cpus[i]; empty: all float over every allowed processor
  uint32_t memory_mib = 0;  // DPDK's heap without hugepages; 0: as much as the frame pool needs
  HugePages hugepages = HugePages::kAuto;
  uint32_t frames_mib = 0;                   // heap for frames, if memory_mib does not set the size
  std::string file_prefix;                   // empty: a different one for each process
  std::vector<std::string> pci_devices;      // devargs to probe; none: no PCI bus at all
  bool telemetry = false;                    // DPDK's, on a socket in the runtime directory
  std::string log_level;                     // for --log-level; empty: warnings and worse
  std::vector<std::string> extra_arguments;  // appended unchanged
};

}  // namespace roci::dataplane
