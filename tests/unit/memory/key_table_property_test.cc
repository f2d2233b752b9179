// Random registrations and lookups, compared byte by byte with a naive model.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <random>

#include "memory/key_table.h"

namespace roci::memory {
namespace {

const auto* const kApp = reinterpret_cast<const AppMemory*>(0x1000);
constexpr uint64_t kFileLength = 16 * 4096;

// The model of a region: the location of each byte.
struct Place {
  const std::byte* direct;
  uint64_t remote_va;
  bool operator==(const Place&) const = default;
};
struct Model {
  uint32_t pd;
  Access access;
  uint64_t iova;
  std::vector<Place> bytes;
};

class Property : public testing::Test {
 protected:
  Property() {
    const char* given = std::getenv("ROCI_TEST_SEED");
    seed_ = given != nullptr ? std::strtoul(given, nullptr, 0) : std::random_device{}();
    std::cout << "seed " << seed_ << " (ROCI_TEST_SEED)\n";
    random_.seed(seed_);
    const int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, kFileLength), 0);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    int error = 0;
    file_ = MappedFile::Map(fd, 0, kFileLength, true, &error);
    close(fd);
  }

  uint64_t Below(uint64_t limit) { return random_() % limit; }

  Access RandomAccess() {
    const auto access = static_cast<Access>(Below(16));
    return access == Access::kNone ? access : access | Access::kLocalWrite;
  }

  uint64_t RandomBase(uint64_t length) {
    switch (Below(4)) {
      case 0:
        return 0;
      case 1:
        return UINT64_MAX - (length == 0 ? 0 : length - 1);  // ends at the highest address
      default:
        return random_();
    }
  }

  std::vector<Extent> RandomExtents(uint64_t va, uint64_t length) {
    std::vector<Extent> extents;
    uint64_t done = 0;
    while (done < length) {
      // Often in one piece, because Resolve() has a separate path for such regions.
      const uint64_t piece = Below(2) == 0 ? length - done : 1 + Below(length - done);
      const bool direct = Below(2) == 0 && piece <= kFileLength;
      extents.push_back({va + done, piece, direct ? file_ : nullptr,
                         direct ? Below(kFileLength - piece + 1) : 0});
      done += piece;
    }
    return extents;
  }

  void Register() {
    const uint64_t length = Below(500);
    Translation translation;
    translation.va = RandomBase(length);
    translation.iova = RandomBase(length);
    // Other tests cover regions that wrap around the end of the address space.
    if (length > 0 && translation.va + (length - 1) < translation.va) translation.va = 0;
    if (length > 0 && translation.iova + (length - 1) < translation.iova) translation.iova = 0;
    translation.length = length;
    if (Below(4) != 0) translation.extents = RandomExtents(translation.va, length);
    Model model{static_cast<uint32_t>(Below(3)), RandomAccess(), translation.iova, {}};
    for (uint64_t i = 0; i < length; ++i) model.bytes.push_back({nullptr, translation.va + i});
    for (const Extent& extent : translation.extents) {
      for (uint64_t i = 0; extent.mapping != nullptr && i < extent.length; ++i) {
        model.bytes[extent.va - translation.va + i] = {extent.mapping->At(extent.file_offset) + i,
                                                       0};
      }
    }
    uint32_t key = 0;
    const MemoryStatus status = table_.Register(model.pd, model.access, translation, &key);
    if (models_.size() == table_.capacity()) {
      ASSERT_EQ(status, MemoryStatus::kTableFull);
      return;
    }
    ASSERT_EQ(status, MemoryStatus::kOk);
    ASSERT_TRUE(models_.emplace(key, std::move(model)).second);
    known_.push_back(key);
  }

  void Deregister() {
    if (known_.empty()) return;
    const uint32_t key = known_[Below(known_.size())];
    ReleasedMappings released;
    ASSERT_EQ(table_.Deregister(key, &released),
              models_.erase(key) == 1 ? MemoryStatus::kOk : MemoryStatus::kBadKey);
  }

  MemoryStatus Expected(uint32_t key, const AccessContext& context, uint64_t address,
                        uint32_t length, Access need) const {
    const auto found = models_.find(key);
    if (found == models_.end()) return MemoryStatus::kBadKey;
    const Model& model = found->second;
    if (model.pd != context.pd) return MemoryStatus::kWrongPd;
    if (!Includes(model.access, need)) return MemoryStatus::kNoPermission;
    // 128 bits cannot wrap.
    const auto first = static_cast<unsigned __int128>(address);
    const auto base = static_cast<unsigned __int128>(model.iova);
    if (first < base || first + length > base + model.bytes.size())
      return MemoryStatus::kOutOfBounds;
    return MemoryStatus::kOk;
  }

  void Lookup() {
    if (known_.empty()) return;
    uint32_t key = known_[Below(known_.size())];
    if (Below(8) == 0) key ^= 1U << Below(32);
    const AccessContext context{static_cast<uint32_t>(Below(3)), 0};
    const auto need = static_cast<Access>(Below(16) & Below(16));
    const auto model = models_.find(key);
    const uint64_t base = model == models_.end() ? 0 : model->second.iova;
    const uint64_t address = Below(16) == 0 ? random_() : base + Below(520) - 10;
    const auto length = static_cast<uint32_t>(Below(16) == 0 ? random_() : 1 + Below(300));
    SegmentList segments;
    const MemoryStatus status = table_.Resolve(key, context, address, length, need, segments);
    if (length == 0) return;
    const MemoryStatus expected = Expected(key, context, address, length, need);
    if (status == MemoryStatus::kTooManySegments) {
      ASSERT_EQ(expected, MemoryStatus::kOk);
      return;
    }
    ASSERT_EQ(status, expected) << "key " << key << " address " << address << " length " << length;
    ASSERT_EQ(segments.total_length(), status == MemoryStatus::kOk ? length : 0);
    uint64_t at = address - base;
    for (const Segment& segment : segments) {
      ASSERT_GT(segment.length, 0U);
      for (uint32_t i = 0; i < segment.length; ++i, ++at) {
        const Place place = segment.direct != nullptr ? Place{segment.direct + i, 0}
                                                      : Place{nullptr, segment.remote_va + i};
        // An assertion for each of millions of bytes would be too slow.
        if (place != model->second.bytes[at]) FAIL() << "byte " << at << " of key " << key;
      }
    }
  }

  uint64_t seed_;
  std::mt19937_64 random_;
  std::shared_ptr<MappedFile> file_;
  KeyTable table_{kApp, 40};
  std::map<uint32_t, Model> models_;
  std::vector<uint32_t> known_;
};

TEST_F(Property, ResolveAgreesWithTheModel) {
  for (int i = 0; i < 200000 && !HasFatalFailure(); ++i) {
    const uint64_t choice = Below(40);
    if (choice == 0) {
      Register();
    } else if (choice == 1) {
      Deregister();
    } else {
      Lookup();
    }
    // A key repeats after 256 uses of its index, so the model must forget old keys in time.
    if (known_.size() <= 200) continue;
    known_.erase(known_.begin(), known_.begin() + 100);
    std::erase_if(models_, [&](const auto& entry) {
      if (std::find(known_.begin(), known_.end(), entry.first) != known_.end()) return false;
      ReleasedMappings released;
      EXPECT_EQ(table_.Deregister(entry.first, &released), MemoryStatus::kOk);
      return true;
    });
  }
}

}  // namespace
}  // namespace roci::memory
