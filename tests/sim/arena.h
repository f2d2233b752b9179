// The memory of one simulated program: regions with guard bands between them, accessed through the
// real key table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "memory/key_table.h"
#include "tests/sim/random.h"

namespace roci::sim {

enum RegionName : uint32_t {
  kSource,    // read by SENDs and WRITEs, local read only
  kTarget,    // written by the peer's WRITEs, read by its READs
  kReceive,   // receive buffers
  kLanding,   // results of READs and atomics
  kAtomics,   // words for the peer's atomics
  kReadOnly,  // grants remote read only
  kRegionCount,
};

// Addresses are the simulated program's own, far away from this process's. One arena is reused for
// many runs: Reset fills every region anew and gives fresh keys.
class Arena {
 public:
  static constexpr uint32_t kPd = 7;
  static constexpr uint64_t kGuardBytes = 256;

  Arena();
  void Reset(Random& random);

  uint64_t va(RegionName region) const { return kBase + offsets_[region]; }
  uint64_t size(RegionName region) const { return kSizes[region]; }
  uint32_t key(RegionName region) const { return keys_[region]; }
  std::span<std::byte> bytes(RegionName region) {
    return {memory_ + offsets_[region], kSizes[region]};
  }
  memory::KeyTable& keys() { return *keys_table_; }
  // False if a byte between the regions changed.
  bool GuardsIntact() const;

 private:
  static constexpr uint64_t kBase = 0x7000'0000'0000;
  static constexpr std::array<uint64_t, kRegionCount> kSizes = {65536, 65536, 65536,
                                                                65536, 512,   4096};

  void Register(RegionName region, memory::Access access, Random& random);

  std::shared_ptr<memory::MappedFile> mapping_;
  std::byte* memory_ = nullptr;
  uint64_t total_ = 0;
  std::array<uint64_t, kRegionCount> offsets_{};
  std::array<uint32_t, kRegionCount> keys_{};
  std::unique_ptr<memory::KeyTable> keys_table_;
};

}  // namespace roci::sim
