// Regions, guards and keys of a simulated program.
#include "tests/sim/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

namespace roci::sim {
namespace {
constexpr std::byte kGuard{0xA5};

constexpr auto kGuardBand = [] {
  std::array<std::byte, Arena::kGuardBytes> band{};
  band.fill(kGuard);
  return band;
}();
}  // namespace

Arena::Arena() {
  uint64_t offset = kGuardBytes;
  for (uint32_t i = 0; i < kRegionCount; ++i) {
    offsets_[i] = offset;
    offset += kSizes[i] + kGuardBytes;
  }
  total_ = offset;
  const int fd = memfd_create("sim", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(total_)) != 0) abort();
  if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) abort();
  int error = 0;
  mapping_ = memory::MappedFile::Map(fd, 0, total_, true, &error);
  close(fd);
  if (mapping_ == nullptr) abort();
  memory_ = mapping_->At(0);
}

void Arena::Reset(Random& random) {
  std::fill_n(memory_, total_, kGuard);
  for (uint32_t i = 0; i < kRegionCount; ++i) {
    std::span<std::byte> region = bytes(static_cast<RegionName>(i));
    for (size_t at = 0; at + 8 <= region.size(); at += 8) {
      const uint64_t word = random.Next();
      std::memcpy(region.data() + at, &word, 8);
    }
  }
  using memory::Access;
  keys_table_ = std::make_unique<memory::KeyTable>(nullptr, 64);
  Register(kSource, Access::kNone, random);
  Register(kTarget,
           Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kWindowBind |
               Access::kFlushGlobal,
           random);
  Register(kReceive, Access::kLocalWrite, random);
  Register(kLanding, Access::kLocalWrite, random);
  Register(kAtomics, Access::kLocalWrite | Access::kRemoteAtomic | Access::kRemoteRead, random);
  Register(kReadOnly, Access::kRemoteRead, random);
}

// Some regions have several extents, like a region over several VMAs. No aligned word crosses two
// extents, as none crosses two pages: an ATOMIC WRITE could not be executed there.
void Arena::Register(RegionName region, memory::Access access, Random& random) {
  memory::Translation translation{va(region), kSizes[region], va(region), {}};
  uint64_t done = 0;
  while (done < kSizes[region]) {
    uint64_t length = kSizes[region] - done;
    if (region != kAtomics && random.Chance(300) && translation.extents.size() < 4) {
      length = 8 * random.Between(1, length / 8);
    }
    translation.extents.push_back(
        memory::Extent{va(region) + done, length, mapping_, offsets_[region] + done});
    done += length;
  }
  if (keys_table_->Register(kPd, access, std::move(translation), &keys_[region]) !=
      memory::MemoryStatus::kOk) {
    abort();
  }
}

bool Arena::GuardsIntact() const {
  const auto intact = [&](uint64_t begin) {
    return std::memcmp(memory_ + begin, kGuardBand.data(), kGuardBytes) == 0;
  };
  if (!intact(0)) return false;
  for (uint32_t i = 0; i < kRegionCount; ++i) {
    if (!intact(offsets_[i] + kSizes[i])) return false;
  }
  return true;
}

}  // namespace roci::sim
