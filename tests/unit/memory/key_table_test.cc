// Registration, keys and translation: one test per rule.
#include "memory/key_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "memory/app_memory.h"
#include "memory/copy.h"

namespace roci::memory {
namespace {

constexpr AccessContext kPd1{.pd = 1, .qpn = 17};
constexpr Access kAll =
    Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic;
// Never dereferenced: the segments only have to return it.
const auto* const kApp = reinterpret_cast<const AppMemory*>(0x1000);

Translation Plain(uint64_t va, uint64_t length) {
  return {.va = va, .length = length, .iova = va, .extents = {}};
}

std::shared_ptr<MappedFile> SealedFile(size_t length, bool writable = true) {
  const int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(length)), 0);
  EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  int error = 0;
  auto mapped = MappedFile::Map(fd, 0, length, writable, &error);
  EXPECT_NE(mapped, nullptr) << error;
  close(fd);
  return mapped;
}

uint32_t MustRegister(KeyTable& table, Access access, Translation translation, uint32_t pd = 1) {
  uint32_t key = 0;
  EXPECT_EQ(table.Register(pd, access, std::move(translation), &key), MemoryStatus::kOk);
  return key;
}

MemoryStatus TryResolve(const KeyTable& table, uint32_t key, uint64_t address, uint32_t length,
                        Access need = Access::kNone, AccessContext context = kPd1) {
  SegmentList segments;
  const MemoryStatus status = table.Resolve(key, context, address, length, need, segments);
  EXPECT_EQ(status, table.Check(key, context, address, length, need));
  EXPECT_EQ(status == MemoryStatus::kOk && length > 0, !segments.empty());
  return status;
}

TEST(KeyTable, ChecksInOrder) {
  KeyTable table(kApp, 16);
  const uint32_t key = MustRegister(table, Access::kRemoteRead, Plain(0x1000, 100));
  EXPECT_EQ(TryResolve(table, key, 0x1000, 100, Access::kRemoteRead), MemoryStatus::kOk);
  EXPECT_EQ(TryResolve(table, key + 1, 0, 999, Access::kRemoteWrite, {9, 0}),
            MemoryStatus::kBadKey);
  EXPECT_EQ(TryResolve(table, key, 0, 999, Access::kRemoteWrite, {9, 0}), MemoryStatus::kWrongPd);
  EXPECT_EQ(TryResolve(table, key, 0, 999, Access::kRemoteWrite), MemoryStatus::kNoPermission);
  EXPECT_EQ(TryResolve(table, key, 0, 999, Access::kRemoteRead), MemoryStatus::kOutOfBounds);
  EXPECT_EQ(TryResolve(table, key, 0x1000, 100, Access::kRemoteRead | Access::kRemoteAtomic),
            MemoryStatus::kNoPermission);
}

// Resolve() has a separate path for regions in one mapping.
TEST(KeyTable, ChecksMappedRegionsTheSameWay) {
  KeyTable table(kApp, 16);
  const uint32_t key = MustRegister(table, Access::kRemoteRead,
                                    {.va = 0x1000,
                                     .length = 100,
                                     .iova = 0x1000,
                                     .extents = {{0x1000, 100, SealedFile(4096), 0}}});
  EXPECT_EQ(TryResolve(table, key, 0x1000, 100, Access::kRemoteRead), MemoryStatus::kOk);
  EXPECT_EQ(TryResolve(table, key ^ 1, 0x1000, 100, Access::kRemoteRead), MemoryStatus::kBadKey);
  EXPECT_EQ(TryResolve(table, key, 0x1000, 100, Access::kRemoteRead, {9, 0}),
            MemoryStatus::kWrongPd);
  for (const Access need : {Access::kLocalWrite, Access::kRemoteWrite, Access::kRemoteAtomic}) {
    EXPECT_EQ(TryResolve(table, key, 0x1000, 100, need), MemoryStatus::kNoPermission);
  }
  EXPECT_EQ(TryResolve(table, key, 0x1001, 100, Access::kRemoteRead), MemoryStatus::kOutOfBounds);
  EXPECT_EQ(TryResolve(table, key, 0xFFF, 100, Access::kRemoteRead), MemoryStatus::kOutOfBounds);
}

// The first keys of two programs are almost never equal.
TEST(KeyTable, DifferentSeedsGiveDifferentKeys) {
  std::set<uint32_t> firsts, variants;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    KeyTable table(kApp, 65536, seed);
    const uint32_t first = MustRegister(table, Access::kRemoteRead, Plain(0x1000, 100));
    const uint32_t second = MustRegister(table, Access::kRemoteRead, Plain(0x1000, 100));
    EXPECT_EQ(TryResolve(table, first, 0x1000, 100, Access::kRemoteRead), MemoryStatus::kOk);
    EXPECT_EQ(second >> 8, (first >> 8) + 1);
    EXPECT_EQ(TryResolve(table, second ^ 1, 0x1000, 1, Access::kRemoteRead), MemoryStatus::kBadKey);
    for (const uint32_t wrong : {0u, first - 256, second + 256, 0x101u, ~0u}) {
      if (wrong == first || wrong == second) continue;
      EXPECT_EQ(TryResolve(table, wrong, 0x1000, 1, Access::kRemoteRead), MemoryStatus::kBadKey);
    }
    firsts.insert(first);
    variants.insert(first & 0xFF);
  }
  EXPECT_GT(firsts.size(), 990u);
  EXPECT_GT(variants.size(), 200u);
}

TEST(KeyTable, SeededTableOfAnySizeHoldsWhatItSays) {
  for (const uint32_t capacity : {1u, 3u, 1024u, (1u << 24) - 1}) {
    KeyTable table(kApp, capacity, 0x123456789);
    const uint32_t key = MustRegister(table, Access::kRemoteRead, Plain(0x1000, 100));
    for (uint32_t i = 1; i < std::min(capacity, 2000u); ++i) {
      MustRegister(table, Access::kRemoteRead, Plain(0x1000, 100));
    }
    ReleasedMappings released;
    EXPECT_EQ(table.Deregister(key, &released), MemoryStatus::kOk);
    const uint32_t next = MustRegister(table, Access::kRemoteRead, Plain(0x1000, 100));
    EXPECT_NE(next, key) << "a stale key";
    EXPECT_EQ(TryResolve(table, key, 0x1000, 1, Access::kRemoteRead), MemoryStatus::kBadKey);
    EXPECT_EQ(table.Deregister(next, &released), MemoryStatus::kOk);
  }
}

TEST(KeyTable, IndicesThatWereNeverUsedOpenNothing) {
  KeyTable table(kApp, 5000);
  const uint32_t key = MustRegister(table, kAll, Plain(0x1000, 100));
  for (uint32_t slot = 0; slot <= 6000; ++slot) {
    const uint32_t other = slot << 8 | (key & 0xFF);
    if (other == key) continue;
    EXPECT_EQ(TryResolve(table, other, 0x1000, 1), MemoryStatus::kBadKey) << slot;
  }
}

TEST(KeyTable, EmptyTableKnowsNoKey) {
  KeyTable table(kApp, 16);
  for (const uint32_t key : {0U, 1U, 255U, 256U, 257U, 0xFFFFFFFFU}) {
    EXPECT_EQ(TryResolve(table, key, 0, 8), MemoryStatus::kBadKey);
    EXPECT_FALSE(table.Info(key).has_value());
  }
}

TEST(KeyTable, EveryByteMustBeInside) {
  KeyTable table(kApp, 16);
  for (const bool direct : {false, true}) {
    Translation translation = Plain(0x1000, 100);
    if (direct) translation.extents.push_back({0x1000, 100, SealedFile(4096), 0});
    const uint32_t key = MustRegister(table, kAll, translation);
    EXPECT_EQ(TryResolve(table, key, 0x1000, 100), MemoryStatus::kOk);
    EXPECT_EQ(TryResolve(table, key, 0x1063, 1), MemoryStatus::kOk);
    EXPECT_EQ(TryResolve(table, key, 0x1064, 1), MemoryStatus::kOutOfBounds);
    EXPECT_EQ(TryResolve(table, key, 0x1063, 2), MemoryStatus::kOutOfBounds);
    EXPECT_EQ(TryResolve(table, key, 0xFFF, 1), MemoryStatus::kOutOfBounds);
    EXPECT_EQ(TryResolve(table, key, 0xFFF, 50), MemoryStatus::kOutOfBounds);
    EXPECT_EQ(TryResolve(table, key, 0x1000, 101), MemoryStatus::kOutOfBounds);
    EXPECT_EQ(TryResolve(table, key, 0x1000, UINT32_MAX), MemoryStatus::kOutOfBounds);
    EXPECT_EQ(TryResolve(table, key, UINT64_MAX, 2), MemoryStatus::kOutOfBounds);
    EXPECT_EQ(TryResolve(table, key, UINT64_MAX - 0xFFF, 0x1001 + 0x1000),
              MemoryStatus::kOutOfBounds);
    EXPECT_EQ(TryResolve(table, key, 0x1000, 0), MemoryStatus::kOk);
  }
}

TEST(KeyTable, WholeAddressSpaceAndItsEnd) {
  KeyTable table(kApp, 16);
  const uint32_t everything = MustRegister(table, kAll, Plain(0, UINT64_MAX));
  EXPECT_EQ(TryResolve(table, everything, UINT64_MAX - 8, 8), MemoryStatus::kOk);
  EXPECT_EQ(TryResolve(table, everything, UINT64_MAX, 1), MemoryStatus::kOutOfBounds);
  const uint32_t top = MustRegister(table, kAll, Plain(UINT64_MAX - 9, 10));
  EXPECT_EQ(TryResolve(table, top, UINT64_MAX, 1), MemoryStatus::kOk);
  EXPECT_EQ(TryResolve(table, top, UINT64_MAX, 2), MemoryStatus::kOutOfBounds);
  EXPECT_EQ(TryResolve(table, top, 0, 1), MemoryStatus::kOutOfBounds);
  EXPECT_EQ(table.Check(everything, kPd1, 1, UINT64_MAX, Access::kNone),
            MemoryStatus::kOutOfBounds);
  uint32_t key = 0;
  EXPECT_EQ(table.Register(1, kAll, Plain(UINT64_MAX - 9, 11), &key),
            MemoryStatus::kInvalidArgument);
  EXPECT_EQ(
      table.Register(1, kAll, {.va = 0, .length = 11, .iova = UINT64_MAX - 9, .extents = {}}, &key),
      MemoryStatus::kInvalidArgument);
  EXPECT_EQ(table.size(), 2U);
}

TEST(KeyTable, RegistrationRefusesContradictions) {
  KeyTable table(kApp, 16);
  uint32_t key = 0;
  for (const Access access :
       {Access::kRemoteWrite, Access::kRemoteAtomic, Access::kRemoteRead | Access::kRemoteWrite,
        static_cast<Access>(1U << 11), static_cast<Access>(1U << 31)}) {
    EXPECT_EQ(table.Register(1, access, Plain(0, 8), &key), MemoryStatus::kInvalidArgument);
  }
  auto file = SealedFile(4096);
  auto with = [&](std::vector<Extent> extents) {
    return Translation{.va = 0x1000, .length = 4096, .iova = 0, .extents = std::move(extents)};
  };
  const std::vector<std::vector<Extent>> bad = {
      {{0x1000, 4095, nullptr, 0}},                            // short
      {{0x1000, 4097, nullptr, 0}},                            // long
      {{0x1001, 4095, nullptr, 0}},                            // starts late
      {{0x1000, 0, nullptr, 0}, {0x1000, 4096, nullptr, 0}},   // empty
      {{0x1000, 10, nullptr, 0}, {0x100B, 4085, nullptr, 0}},  // hole
      {{0x1000, 10, nullptr, 0}, {0x1009, 4087, nullptr, 0}},  // overlap
      {{0x1000, UINT64_MAX, nullptr, 0}},                      // wraps
      {{0x1000, 4096, file, 1}},                               // beyond the mapping
      {{0x1000, 4096, SealedFile(4096, false), 0}},            // may not be written
  };
  for (const auto& extents : bad) {
    EXPECT_EQ(table.Register(1, kAll, with(extents), &key), MemoryStatus::kInvalidArgument);
  }
  EXPECT_EQ(table.Register(1, Access::kRemoteRead, with(bad.back()), &key), MemoryStatus::kOk);
  EXPECT_EQ(table.size(), 1U);
}

TEST(KeyTable, AddressesAreIovas) {
  KeyTable table(kApp, 16);
  const uint32_t zero_based = MustRegister(table, kAll | Access::kZeroBased,
                                           {.va = 0x7000, .length = 64, .iova = 0, .extents = {}});
  SegmentList segments;
  ASSERT_EQ(table.Resolve(zero_based, kPd1, 8, 16, Access::kRemoteRead, segments),
            MemoryStatus::kOk);
  EXPECT_EQ(segments[0].remote_va, 0x7008U);
  EXPECT_EQ(segments[0].app, kApp);
  EXPECT_EQ(segments[0].length, 16U);
  EXPECT_EQ(TryResolve(table, zero_based, 0x7000, 1), MemoryStatus::kOutOfBounds);
}

TEST(KeyTable, RangesAcrossExtentsBecomeSeveralSegments) {
  KeyTable table(kApp, 16);
  auto file = SealedFile(8192);
  Translation translation = Plain(0x10000, 300);
  translation.extents = {
      {0x10000, 100, file, 50}, {0x10064, 100, nullptr, 0}, {0x100C8, 100, file, 4096}};
  const uint32_t key = MustRegister(table, kAll, translation);
  SegmentList segments;
  ASSERT_EQ(table.Resolve(key, kPd1, 0x10000 + 90, 150, Access::kNone, segments),
            MemoryStatus::kOk);
  ASSERT_EQ(segments.size(), 3U);
  EXPECT_EQ(segments[0].direct, file->At(140));
  EXPECT_EQ(segments[0].length, 10U);
  EXPECT_EQ(segments[1].direct, nullptr);
  EXPECT_EQ(segments[1].remote_va, 0x10064U);
  EXPECT_EQ(segments[1].length, 100U);
  EXPECT_EQ(segments[2].direct, file->At(4096));
  EXPECT_EQ(segments[2].length, 40U);
  EXPECT_EQ(segments.total_length(), 150U);
  EXPECT_FALSE(segments.AllDirect());
}

TEST(KeyTable, FullListIsLeftAsItWas) {
  KeyTable table(kApp, 16);
  constexpr uint64_t kBytes = 2 * SegmentList::kCapacity;
  Translation translation = Plain(0, kBytes);
  for (uint64_t i = 0; i < kBytes; ++i) translation.extents.push_back({i, 1, nullptr, 0});
  const uint32_t key = MustRegister(table, kAll, translation);
  SegmentList segments;
  ASSERT_EQ(table.Resolve(key, kPd1, 0, 4, Access::kNone, segments), MemoryStatus::kOk);
  EXPECT_EQ(table.Resolve(key, kPd1, 0, SegmentList::kCapacity - 3, Access::kNone, segments),
            MemoryStatus::kTooManySegments);
  EXPECT_EQ(segments.size(), 4U);
  EXPECT_EQ(segments.total_length(), 4U);
  EXPECT_EQ(table.Resolve(key, kPd1, 0, SegmentList::kCapacity - 4, Access::kNone, segments),
            MemoryStatus::kOk);
}

TEST(KeyTable, KeysAreNotReusedSoonAndNeverZero) {
  KeyTable table(kApp, 3);
  ReleasedMappings released;
  std::set<uint32_t> seen;
  for (int i = 0; i < 3 * 255; ++i) {
    const uint32_t key = MustRegister(table, kAll, Plain(0, 8));
    EXPECT_NE(key, 0U);
    EXPECT_TRUE(seen.insert(key).second) << "key came again after " << i;
    EXPECT_EQ(table.Deregister(key, &released), MemoryStatus::kOk);
    EXPECT_EQ(TryResolve(table, key, 0, 8), MemoryStatus::kBadKey);
    EXPECT_EQ(table.Deregister(key, &released), MemoryStatus::kBadKey);
  }
  EXPECT_EQ(table.size(), 0U);
}

TEST(KeyTable, FreedIndexHasAllOtherVariantsDead) {
  KeyTable table(kApp, 1);
  ReleasedMappings released;
  const uint32_t first = MustRegister(table, kAll, Plain(0, 8));
  table.Deregister(first, &released);
  const uint32_t second = MustRegister(table, kAll, Plain(0, 8));
  EXPECT_EQ(first >> 8, second >> 8);
  for (uint32_t variant = 0; variant < 256; ++variant) {
    const uint32_t key = (second & ~0xFFU) | variant;
    EXPECT_EQ(TryResolve(table, key, 0, 8),
              key == second ? MemoryStatus::kOk : MemoryStatus::kBadKey);
  }
}

TEST(KeyTable, HoldsExactlyItsCapacity) {
  constexpr uint32_t kCapacity = 5000;  // several chunks
  KeyTable table(kApp, kCapacity);
  std::vector<uint32_t> keys;
  for (uint32_t i = 0; i < kCapacity; ++i) keys.push_back(MustRegister(table, kAll, Plain(i, 1)));
  uint32_t key = 0;
  EXPECT_EQ(table.Register(1, kAll, Plain(0, 1), &key), MemoryStatus::kTableFull);
  EXPECT_EQ(table.RegisterNull(1, &key), MemoryStatus::kTableFull);
  for (uint32_t i = 0; i < kCapacity; ++i) {
    EXPECT_EQ(TryResolve(table, keys[i], i, 1), MemoryStatus::kOk);
    EXPECT_EQ(TryResolve(table, keys[i], i + 1, 1), MemoryStatus::kOutOfBounds);
  }
  ReleasedMappings released;
  EXPECT_EQ(table.Deregister(keys[77], &released), MemoryStatus::kOk);
  EXPECT_NE(MustRegister(table, kAll, Plain(0, 1)), keys[77]);
  EXPECT_EQ(table.Register(1, kAll, Plain(0, 1), &key), MemoryStatus::kTableFull);
  for (const uint32_t wild : {0U, 1U, 0xFFU, 0xFFFFFFFFU, (kCapacity + 1) << 8, 0x01000000U}) {
    EXPECT_EQ(TryResolve(table, wild, 0, 1), MemoryStatus::kBadKey);
  }
}

TEST(KeyTable, ReregisterKeepsTheKey) {
  KeyTable table(kApp, 4);
  ReleasedMappings released;
  Translation mapped = Plain(0x1000, 4096);
  mapped.extents.push_back({0x1000, 4096, SealedFile(4096), 0});
  const uint32_t key = MustRegister(table, kAll, mapped);
  EXPECT_EQ(table.Reregister(key, {.pd = 2, .access = {}, .translation = {}}, &released),
            MemoryStatus::kOk);
  EXPECT_EQ(TryResolve(table, key, 0x1000, 8), MemoryStatus::kWrongPd);
  EXPECT_EQ(TryResolve(table, key, 0x1000, 8, kAll, {2, 0}), MemoryStatus::kOk);
  EXPECT_EQ(
      table.Reregister(key, {.pd = 1, .access = Access::kRemoteRead, .translation = {}}, &released),
      MemoryStatus::kOk);
  EXPECT_EQ(TryResolve(table, key, 0x1000, 8, Access::kLocalWrite), MemoryStatus::kNoPermission);
  EXPECT_TRUE(released.empty());
  // A refused change has no effect.
  EXPECT_EQ(table.Reregister(key, {.pd = 5, .access = Access::kRemoteWrite, .translation = {}},
                             &released),
            MemoryStatus::kInvalidArgument);
  EXPECT_EQ(table.Reregister(key, {.pd = 5, .access = {}, .translation = Plain(UINT64_MAX, 8)},
                             &released),
            MemoryStatus::kInvalidArgument);
  EXPECT_EQ(TryResolve(table, key, 0x1000, 8, Access::kRemoteRead), MemoryStatus::kOk);
  EXPECT_EQ(table.Reregister(key, {.pd = {}, .access = kAll, .translation = Plain(0x9000, 64)},
                             &released),
            MemoryStatus::kOk);
  EXPECT_EQ(released.size(), 1U);
  EXPECT_EQ(TryResolve(table, key, 0x1000, 8), MemoryStatus::kOutOfBounds);
  EXPECT_EQ(TryResolve(table, key, 0x9000, 64, kAll), MemoryStatus::kOk);
}

TEST(KeyTable, WriteAccessNeverUsesAReadOnlyMapping) {
  KeyTable table(kApp, 4);
  ReleasedMappings released;
  Translation mapped = Plain(0x1000, 4096);
  mapped.extents.push_back({0x1000, 4096, SealedFile(4096, false), 0});
  const uint32_t key = MustRegister(table, Access::kNone, mapped);
  SegmentList segments;
  table.Resolve(key, kPd1, 0x1000, 8, Access::kNone, segments);
  EXPECT_NE(segments[0].direct, nullptr);
  ASSERT_EQ(table.Reregister(key, {.pd = {}, .access = kAll, .translation = {}}, &released),
            MemoryStatus::kOk);
  EXPECT_EQ(released.size(), 1U);
  segments.Clear();
  ASSERT_EQ(table.Resolve(key, kPd1, 0x1000, 8, kAll, segments), MemoryStatus::kOk);
  EXPECT_EQ(segments[0].direct, nullptr);
}

TEST(KeyTable, UseProcessVmDropsTheMappingsOfARange) {
  KeyTable table(kApp, 8);
  auto file = SealedFile(3 * 4096);
  auto region = [&](uint64_t va, uint64_t length) {
    Translation translation = Plain(va, length);
    translation.extents.push_back({va, length, file, va - 0x10000});
    return MustRegister(table, kAll, translation);
  };
  const uint32_t before = region(0x10000, 4096);
  const uint32_t within = region(0x11010, 16);
  const uint32_t across = region(0x10FFF, 2);
  const uint32_t after = region(0x12000, 4096);
  ReleasedMappings released;
  table.UseProcessVm(0x11000, 4096, &released);
  EXPECT_EQ(released.size(), 2U);
  EXPECT_EQ(table.Info(before)->direct_length, 4096U);
  EXPECT_EQ(table.Info(within)->direct_length, 0U);
  EXPECT_EQ(table.Info(across)->direct_length, 0U);
  EXPECT_EQ(table.Info(after)->direct_length, 4096U);
  SegmentList segments;
  ASSERT_EQ(table.Resolve(within, kPd1, 0x11010, 16, kAll, segments), MemoryStatus::kOk);
  EXPECT_EQ(segments[0].direct, nullptr);
  EXPECT_EQ(segments[0].remote_va, 0x11010U);
}

TEST(KeyTable, StopsDirectAccessInParts) {
  KeyTable table(kApp, 8);
  auto file = SealedFile(2 * 4096);
  const auto add = [&] {
    Translation translation = Plain(0x10000, 2 * 4096);
    translation.extents.push_back({0x10000, 2 * 4096, file, 0});
    return MustRegister(table, kAll, translation);
  };
  std::vector<uint32_t> keys;
  for (int i = 0; i < 5; ++i) keys.push_back(add());
  const uint32_t window = [&] {
    uint32_t key = 0;
    EXPECT_EQ(table.AllocateWindow(1, WindowType::kType1, &key), MemoryStatus::kOk);
    return key;
  }();
  EXPECT_EQ(table.StopDirectAccess(4), 4u);
  EXPECT_EQ(table.StopDirectAccess(4), 2u);
  EXPECT_EQ(table.StopDirectAccess(4), 0u);
  keys.push_back(add());
  EXPECT_EQ(table.Info(window)->length, 0U);
  for (const uint32_t key : keys) {
    EXPECT_EQ(table.Info(key)->direct_length, 0U);
    SegmentList segments;
    ASSERT_EQ(table.Resolve(key, kPd1, 0x10010, 16, kAll, segments), MemoryStatus::kOk);
    ASSERT_EQ(segments.size(), 1U);
    EXPECT_EQ(segments[0].direct, nullptr);
    EXPECT_EQ(segments[0].app, AppMemory::OwnProcess());
    EXPECT_EQ(segments[0].remote_va, reinterpret_cast<uintptr_t>(file->At(0x10)));
  }
}

TEST(KeyTable, UseProcessVmVisitsSomeSlots) {
  KeyTable table(kApp, 8);
  auto file = SealedFile(4096);
  std::vector<uint32_t> keys;
  for (int i = 0; i < 5; ++i) {
    Translation translation = Plain(0x10000, 4096);
    translation.extents.push_back({0x10000, 4096, file, 0});
    keys.push_back(MustRegister(table, kAll, translation));
  }
  const auto count_mapped = [&] {
    return std::count_if(keys.begin(), keys.end(),
                         [&](uint32_t key) { return table.Info(key)->direct_length != 0; });
  };
  ReleasedMappings released;
  uint32_t next = table.UseProcessVm(0x10000, 1, &released, kApp, KeyTable::kFirstSlot, 2);
  EXPECT_EQ(count_mapped(), 3);
  EXPECT_EQ(released.size(), 2U);
  next = table.UseProcessVm(0x10000, 1, &released, kApp, next, 2);
  EXPECT_EQ(count_mapped(), 1);
  EXPECT_EQ(table.UseProcessVm(0x10000, 1, &released, kApp, next, 2), 0U);
  EXPECT_EQ(count_mapped(), 0);
  EXPECT_EQ(released.size(), 5U);
}

TEST(KeyTable, NullRegionDiscardsWritesAndReadsAsZeros) {
  KeyTable table(kApp, 4);
  uint32_t key = 0;
  ASSERT_EQ(table.RegisterNull(1, &key), MemoryStatus::kOk);
  std::vector<std::byte> bytes(100000, std::byte{0xAB});
  SegmentList segments;
  ASSERT_EQ(table.Resolve(key, kPd1, 12345, 100000, Access::kLocalWrite, segments),
            MemoryStatus::kOk);
  EXPECT_EQ(CopyIn(segments, bytes), MemoryStatus::kOk);
  segments.Clear();
  ASSERT_EQ(table.Resolve(key, kPd1, 12345, 100000, Access::kNone, segments), MemoryStatus::kOk);
  EXPECT_EQ(CopyOut(segments, bytes), MemoryStatus::kOk);
  for (const std::byte byte : bytes) ASSERT_EQ(byte, std::byte{0});
  EXPECT_EQ(TryResolve(table, key, 0, 8, Access::kRemoteRead), MemoryStatus::kNoPermission);
  EXPECT_EQ(TryResolve(table, key, 0, 8, Access::kNone, {2, 0}), MemoryStatus::kWrongPd);
  ReleasedMappings released;
  EXPECT_EQ(table.Reregister(key, {.pd = 2, .access = {}, .translation = {}}, &released),
            MemoryStatus::kInvalidArgument);
  EXPECT_EQ(table.Deregister(key, &released), MemoryStatus::kOk);
}

TEST(KeyTable, ForEachVisitsWhatIsRegistered) {
  KeyTable table(kApp, 8);
  const uint32_t a = MustRegister(table, Access::kNone, Plain(0x1000, 10), 3);
  const uint32_t b = MustRegister(table, kAll, Plain(0x2000, 20), 4);
  ReleasedMappings released;
  table.Deregister(a, &released);
  std::vector<RegionInfo> seen;
  table.ForEach([&](const RegionInfo& info) { seen.push_back(info); });
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].key, b);
  EXPECT_EQ(seen[0].pd, 4U);
  EXPECT_EQ(seen[0].va, 0x2000U);
  EXPECT_EQ(seen[0].length, 20U);
  EXPECT_EQ(seen[0].access, kAll);
}

TEST(KeyTable, ForEachVisitsSomeSlots) {
  KeyTable table(kApp, 8);
  std::vector<uint32_t> keys;
  for (uint32_t i = 0; i < 5; ++i) {
    keys.push_back(MustRegister(table, kAll, Plain(0x1000 * (i + 1), 10)));
  }
  ReleasedMappings released;
  table.Deregister(keys[1], &released);
  std::vector<uint32_t> seen;
  const auto visit = [&](const RegionInfo& info) { seen.push_back(info.key); };
  uint32_t next = table.ForEach(visit, KeyTable::kFirstSlot, 2);
  EXPECT_EQ(seen, std::vector<uint32_t>({keys[0]}));
  next = table.ForEach(visit, next, 2);
  EXPECT_EQ(seen, std::vector<uint32_t>({keys[0], keys[2], keys[3]}));
  EXPECT_EQ(table.ForEach(visit, next, 1), 0U) << "there are no more";
  EXPECT_EQ(seen, std::vector<uint32_t>({keys[0], keys[2], keys[3], keys[4]}));
  EXPECT_EQ(table.ForEach(visit, 1000, 2), 0U) << "behind the last slot";
  EXPECT_EQ(seen.size(), 4U);
}

}  // namespace
}  // namespace roci::memory
