// Memory windows: bind, access, invalidate and unbind.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "memory/key_table.h"

namespace roci::memory {
namespace {

constexpr uint32_t kPd = 1;
constexpr AccessContext kQp17{.pd = kPd, .qpn = 17};
constexpr AccessContext kQp18{.pd = kPd, .qpn = 18};
constexpr Access kBindable = Access::kLocalWrite | Access::kWindowBind;
const auto* const kApp = reinterpret_cast<const AppMemory*>(0x1000);

class WindowTest : public ::testing::Test {
 protected:
  WindowTest() {
    EXPECT_EQ(table_.Register(kPd, kBindable, {0x10000, 0x1000, 0x10000, {}}, &region_),
              MemoryStatus::kOk);
    EXPECT_EQ(table_.AllocateWindow(kPd, WindowType::kType1, &type1_), MemoryStatus::kOk);
    EXPECT_EQ(table_.AllocateWindow(kPd, WindowType::kType2, &type2_), MemoryStatus::kOk);
  }

  WindowBinding Binding(uint32_t key) const {
    return {.window = key >> 8,
            .new_key = (key & ~0xFFu) | ((key + 1) & 0xFF),
            .region_key = region_,
            .access = Access::kRemoteWrite | Access::kRemoteRead,
            .address = 0x10100,
            .length = 0x200};
  }
  // Binds with the next key, and stores it in `*key` on success.
  MemoryStatus Bind(uint32_t* key, const AccessContext& context = kQp17) {
    const WindowBinding binding = Binding(*key);
    const MemoryStatus status = table_.BindWindow(binding, context);
    if (status == MemoryStatus::kOk) *key = binding.new_key;
    return status;
  }
  MemoryStatus Use(uint32_t key, const AccessContext& context = kQp17, uint64_t address = 0x10100,
                   uint32_t length = 0x200, Access need = Access::kRemoteWrite) {
    SegmentList segments;
    const MemoryStatus status = table_.Resolve(key, context, address, length, need, segments);
    EXPECT_EQ(status, table_.Check(key, context, address, length, need));
    if (status == MemoryStatus::kOk) {
      EXPECT_EQ(segments.total_length(), length);
      last_va_ = segments[0].remote_va;
    }
    return status;
  }

  KeyTable table_{kApp, 8};
  uint32_t region_ = 0, type1_ = 0, type2_ = 0;
  uint64_t last_va_ = 0;
};

TEST_F(WindowTest, IsUnboundFromADroppedRegion) {
  ASSERT_EQ(Bind(&type2_), MemoryStatus::kOk);
  ReleasedMappings released;
  EXPECT_EQ(table_.Deregister(region_, &released), MemoryStatus::kInUse);
  EXPECT_EQ(table_.Drop(region_, &released), MemoryStatus::kOk);
  EXPECT_EQ(Use(type2_), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.Drop(region_, &released), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.Drop(type2_, &released), MemoryStatus::kOk) << "a window's own key";
  EXPECT_EQ(table_.DeallocateWindow(type2_ >> 8), MemoryStatus::kBadKey);
}

TEST_F(WindowTest, TakesTheVariantOfItsNewKeyAlone) {
  WindowBinding binding = Binding(type2_);
  binding.new_key = 0xABCDEF42;
  ASSERT_EQ(table_.BindWindow(binding, kQp17), MemoryStatus::kOk);
  EXPECT_EQ(Use(binding.new_key), MemoryStatus::kBadKey);
  EXPECT_EQ(Use((type2_ & ~0xFFu) | 0x42), MemoryStatus::kOk);
}

TEST_F(WindowTest, GrantsNothingBeforeItIsBound) {
  EXPECT_EQ(Use(type1_), MemoryStatus::kBadKey);
  EXPECT_EQ(Use(type2_), MemoryStatus::kBadKey);
}

TEST_F(WindowTest, GrantsItsRangeAndRightsAlone) {
  for (uint32_t* key : {&type1_, &type2_}) {
    const uint32_t old = *key;
    ASSERT_EQ(Bind(key), MemoryStatus::kOk);
    EXPECT_EQ(Use(old), MemoryStatus::kBadKey) << "the key before the bind";
    EXPECT_EQ(Use(*key), MemoryStatus::kOk);
    EXPECT_EQ(last_va_, 0x10100u);
    EXPECT_EQ(Use(*key, kQp17, 0x100FF, 1), MemoryStatus::kOutOfBounds);
    EXPECT_EQ(Use(*key, kQp17, 0x10300, 1), MemoryStatus::kOutOfBounds);
    EXPECT_EQ(Use(*key, kQp17, 0x10100, 8, Access::kRemoteAtomic), MemoryStatus::kNoPermission);
    EXPECT_EQ(Use(*key, kQp17, 0x10100, 8, Access::kNone), MemoryStatus::kNoPermission)
        << "not an L_Key";
    EXPECT_EQ(Use(*key, kQp17, 0x10100, 8, Access::kLocalWrite), MemoryStatus::kNoPermission);
    EXPECT_EQ(Use(*key, {9, 17}), MemoryStatus::kWrongPd);
  }
}

TEST_F(WindowTest, TypeTwoIsForTheQueuePairThatBoundIt) {
  ASSERT_EQ(Bind(&type1_), MemoryStatus::kOk);
  ASSERT_EQ(Bind(&type2_), MemoryStatus::kOk);
  EXPECT_EQ(Use(type1_, kQp18), MemoryStatus::kOk);
  EXPECT_EQ(Use(type2_, kQp18), MemoryStatus::kWrongQp);
  EXPECT_EQ(table_.Invalidate(type2_, kQp18), MemoryStatus::kWrongQp);
  table_.ReleaseWindowsOf(18);
  EXPECT_EQ(Use(type2_), MemoryStatus::kOk);
  table_.ReleaseWindowsOf(17);
  EXPECT_EQ(Use(type2_), MemoryStatus::kBadKey);
  EXPECT_EQ(Use(type1_), MemoryStatus::kOk) << "type 1 stays";
}

TEST_F(WindowTest, ReleasesSomeWindowsOfAQueuePair) {
  std::vector<uint32_t> keys(5, 0);
  for (uint32_t& key : keys) {
    ASSERT_EQ(table_.AllocateWindow(kPd, WindowType::kType2, &key), MemoryStatus::kOk);
    ASSERT_EQ(Bind(&key), MemoryStatus::kOk);
  }
  const auto count_bound = [&] {
    return std::count_if(keys.begin(), keys.end(), [&](uint32_t key) {
      return table_.Check(key, kQp17, 0x10200, 1, Access::kRemoteRead) == MemoryStatus::kOk;
    });
  };
  ASSERT_EQ(count_bound(), 5);
  uint32_t budget = 2;
  EXPECT_FALSE(table_.ReleaseWindowsOf(17, &budget));
  EXPECT_EQ(budget, 0U);
  EXPECT_EQ(count_bound(), 3);
  EXPECT_FALSE(table_.ReleaseWindowsOf(17, &budget));
  EXPECT_EQ(count_bound(), 3);
  uint32_t slot = KeyTable::kFirstSlot;
  int calls = 0;
  do {
    slot = table_.ReleaseWindowsIn(17, slot, 4);
  } while (slot != 0 && ++calls < 10);
  EXPECT_GE(calls, 1);
  EXPECT_EQ(count_bound(), 0);
  EXPECT_TRUE(table_.ReleaseWindowsOf(17, &budget)) << "there are none";
}

// The program of a region ends; other programs have windows bound to it.
TEST_F(WindowTest, DropsARegionWithManyWindowsInParts) {
  std::vector<uint32_t> keys(5, 0);
  for (uint32_t& key : keys) {
    ASSERT_EQ(table_.AllocateWindow(kPd, WindowType::kType2, &key), MemoryStatus::kOk);
    ASSERT_EQ(Bind(&key), MemoryStatus::kOk);
  }
  ReleasedMappings released;
  uint32_t budget = 2;
  EXPECT_EQ(table_.Drop(region_, &released, &budget), MemoryStatus::kInUse);
  EXPECT_EQ(budget, 0U);
  ASSERT_EQ(Bind(&type2_), MemoryStatus::kNoPermission) << "that would never end";
  budget = 2;
  EXPECT_EQ(table_.Drop(region_, &released, &budget), MemoryStatus::kInUse);
  budget = 2;
  EXPECT_EQ(table_.Drop(region_, &released, &budget), MemoryStatus::kOk);
  EXPECT_EQ(budget, 1U);
  for (const uint32_t key : keys) EXPECT_EQ(Use(key), MemoryStatus::kBadKey);
}

// Queue pairs whose numbers hash to one bucket, with windows bound and unbound in between.
TEST(ManyWindows, OnlyTheWindowsOfOneQueuePairAreInvalidated) {
  constexpr uint32_t kWindows = 600;
  KeyTable table(kApp, kWindows + 1, /*seed=*/5);
  uint32_t region = 0;
  ASSERT_EQ(table.Register(kPd, kBindable, {0x10000, 0x1000, 0x10000, {}}, &region),
            MemoryStatus::kOk);
  std::vector<uint32_t> keys(kWindows);
  const auto context = [](uint32_t i) { return AccessContext{.pd = kPd, .qpn = i % 300}; };
  const auto bind = [&](uint32_t i) {
    return table.BindWindow({.window = keys[i] >> 8,
                             .new_key = keys[i],
                             .region_key = region,
                             .access = Access::kRemoteRead,
                             .address = 0x10000,
                             .length = 1},
                            context(i));
  };
  for (uint32_t i = 0; i < kWindows; ++i) {
    ASSERT_EQ(table.AllocateWindow(kPd, WindowType::kType2, &keys[i]), MemoryStatus::kOk);
    ASSERT_EQ(bind(i), MemoryStatus::kOk);
  }
  for (uint32_t i = 0; i < kWindows; i += 3) {
    ASSERT_EQ(table.Invalidate(keys[i], context(i)), MemoryStatus::kOk);
    if (i % 2 == 0) {
      ASSERT_EQ(bind(i), MemoryStatus::kOk);
    }
  }
  for (uint32_t qpn = 0; qpn < 300; qpn += 2) table.ReleaseWindowsOf(qpn);
  for (uint32_t i = 0; i < kWindows; ++i) {
    const bool bound = i % 2 != 0 && i % 3 != 0;
    EXPECT_EQ(table.Check(keys[i], context(i), 0x10000, 1, Access::kRemoteRead),
              bound ? MemoryStatus::kOk : MemoryStatus::kBadKey)
        << i;
  }
  for (uint32_t key : keys) EXPECT_EQ(table.DeallocateWindow(key >> 8), MemoryStatus::kOk);
  ReleasedMappings released;
  EXPECT_EQ(table.Deregister(region, &released), MemoryStatus::kOk) << "nothing is bound to it";
}

// Two regions with windows of both types, bound alternately.
class TwoRegionsTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kWindows = 12;

  TwoRegionsTest() {
    for (uint32_t& region : regions_) {
      EXPECT_EQ(table_.Register(kPd, kBindable, {0x10000, 0x1000, 0x10000, {}}, &region),
                MemoryStatus::kOk);
    }
    for (uint32_t i = 0; i < kWindows; ++i) {
      const WindowType type = i % 3 == 0 ? WindowType::kType1 : WindowType::kType2;
      EXPECT_EQ(table_.AllocateWindow(kPd, type, &keys_[i]), MemoryStatus::kOk);
      EXPECT_EQ(Bind(i, regions_[i % 2]), MemoryStatus::kOk);
    }
  }

  MemoryStatus Bind(uint32_t i, uint32_t region) {
    return table_.BindWindow({.window = keys_[i] >> 8,
                              .new_key = keys_[i],
                              .region_key = region,
                              .access = Access::kRemoteRead,
                              .address = 0x10000,
                              .length = region == 0 ? 0u : 1u},
                             kQp17);
  }
  bool Bound(uint32_t i) const {
    return table_.Check(keys_[i], kQp17, 0x10000, 1, Access::kRemoteRead) == MemoryStatus::kOk;
  }
  // Unbinds: type 1 by a bind of length 0, type 2 by an invalidate.
  void TakeOff(uint32_t i) {
    EXPECT_EQ(i % 3 == 0 ? Bind(i, 0) : table_.Invalidate(keys_[i], kQp17), MemoryStatus::kOk);
  }

  KeyTable table_{kApp, kWindows + 2};
  std::array<uint32_t, 2> regions_{};
  std::array<uint32_t, kWindows> keys_{};
  ReleasedMappings released_;
};

TEST_F(TwoRegionsTest, ARegionIsFreeAfterItsLastWindowIsUnbound) {
  constexpr std::array<uint32_t, 6> kOrder{6, 0, 10, 2, 8, 4};  // middle, ends, neighbours
  for (uint32_t i : kOrder) {
    EXPECT_EQ(table_.Deregister(regions_[0], &released_), MemoryStatus::kInUse) << i;
    TakeOff(i);
    EXPECT_FALSE(Bound(i));
  }
  EXPECT_EQ(table_.Deregister(regions_[0], &released_), MemoryStatus::kOk);
  for (uint32_t i = 1; i < kWindows; i += 2) EXPECT_TRUE(Bound(i)) << i;
  EXPECT_EQ(table_.Deregister(regions_[1], &released_), MemoryStatus::kInUse);
}

TEST_F(TwoRegionsTest, DroppingARegionUnbindsOnlyItsWindows) {
  TakeOff(4);
  ASSERT_EQ(Bind(4, regions_[1]), MemoryStatus::kOk) << "moved to the other region";
  ASSERT_EQ(Bind(3, regions_[0]), MemoryStatus::kOk) << "type 1, bound again without being off";
  EXPECT_EQ(table_.Drop(regions_[0], &released_), MemoryStatus::kOk);
  for (uint32_t i = 0; i < kWindows; ++i) {
    const bool of_other = i == 4 || (i % 2 != 0 && i != 3);
    EXPECT_EQ(Bound(i), of_other) << i;
  }
  table_.ReleaseWindowsOf(17);
  for (uint32_t i = 0; i < kWindows; ++i) EXPECT_EQ(Bound(i), i == 9) << i << ": type 1 stays";
  EXPECT_EQ(table_.DeallocateWindow(keys_[9] >> 8), MemoryStatus::kOk);
  EXPECT_EQ(table_.Deregister(regions_[1], &released_), MemoryStatus::kOk);
}

TEST_F(WindowTest, ZeroBasedCountsFromItsStart) {
  WindowBinding binding = Binding(type2_);
  binding.access = binding.access | Access::kZeroBased;
  ASSERT_EQ(table_.BindWindow(binding, kQp17), MemoryStatus::kOk);
  EXPECT_EQ(Use(binding.new_key, kQp17, 0, 0x200), MemoryStatus::kOk);
  EXPECT_EQ(last_va_, 0x10100u);
  EXPECT_EQ(Use(binding.new_key, kQp17, 1, 0x200), MemoryStatus::kOutOfBounds);
}

TEST_F(WindowTest, TypeOneIsReboundAndUnboundByLengthZero) {
  ASSERT_EQ(Bind(&type1_), MemoryStatus::kOk);
  const uint32_t first = type1_;
  ASSERT_EQ(Bind(&type1_), MemoryStatus::kOk);
  EXPECT_EQ(Use(first), MemoryStatus::kBadKey);
  EXPECT_EQ(Use(type1_), MemoryStatus::kOk);
  WindowBinding off = Binding(type1_);
  off.length = 0;
  off.region_key = 0;
  ASSERT_EQ(table_.BindWindow(off, kQp17), MemoryStatus::kOk);
  EXPECT_EQ(Use(off.new_key), MemoryStatus::kBadKey);
  ReleasedMappings released;
  EXPECT_EQ(table_.Deregister(region_, &released), MemoryStatus::kOk) << "nothing bound to it";
}

TEST_F(WindowTest, TypeTwoIsInvalidatedBeforeItIsBoundAgain) {
  ASSERT_EQ(Bind(&type2_), MemoryStatus::kOk);
  EXPECT_EQ(Bind(&type2_), MemoryStatus::kInUse);
  EXPECT_EQ(Use(type2_), MemoryStatus::kOk) << "as before";
  ASSERT_EQ(table_.Invalidate(type2_, kQp17), MemoryStatus::kOk);
  EXPECT_EQ(Use(type2_), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.Invalidate(type2_, kQp17), MemoryStatus::kOk) << "stays as it is";
  ASSERT_EQ(Bind(&type2_), MemoryStatus::kOk);
  EXPECT_EQ(Use(type2_), MemoryStatus::kOk);
}

TEST_F(WindowTest, RefusesWrongBinds) {
  uint32_t other_pd = 0, no_bind = 0, read_only = 0, zero_based = 0, null_region = 0;
  const Translation there{0x10000, 0x1000, 0x10000, {}};
  ASSERT_EQ(table_.Register(2, kBindable, there, &other_pd), MemoryStatus::kOk);
  ASSERT_EQ(table_.Register(kPd, Access::kLocalWrite, there, &no_bind), MemoryStatus::kOk);
  ASSERT_EQ(table_.Register(kPd, Access::kWindowBind, there, &read_only), MemoryStatus::kOk);
  ASSERT_EQ(
      table_.Register(kPd, kBindable | Access::kZeroBased, {0x10000, 0x20000, 0, {}}, &zero_based),
      MemoryStatus::kOk);
  ASSERT_EQ(table_.RegisterNull(kPd, &null_region), MemoryStatus::kOk);
  const struct {
    const char* what;
    uint32_t window;
    MemoryStatus status;
    void (*change)(WindowBinding&, uint32_t key);
    uint32_t key;
  } kCases[] = {
      {"no region", type2_, MemoryStatus::kBadKey, [](auto& b, uint32_t) { ++b.region_key; }, 0},
      {"a window for a region", type2_, MemoryStatus::kBadKey,
       [](auto& b, uint32_t key) { b.region_key = key; }, type1_},
      {"a null region", type2_, MemoryStatus::kBadKey,
       [](auto& b, uint32_t key) { b.region_key = key; }, null_region},
      {"no window", type2_, MemoryStatus::kBadKey, [](auto& b, uint32_t) { b.window = 99; }, 0},
      {"a region for a window", type2_, MemoryStatus::kBadKey,
       [](auto& b, uint32_t key) {
         b.window = key >> 8;
         b.new_key = key + 1;
       },
       region_},
      {"another domain", type2_, MemoryStatus::kWrongPd,
       [](auto& b, uint32_t key) { b.region_key = key; }, other_pd},
      {"region without bind", type1_, MemoryStatus::kNoPermission,
       [](auto& b, uint32_t key) { b.region_key = key; }, no_bind},
      {"write on a read-only region", type1_, MemoryStatus::kNoPermission,
       [](auto& b, uint32_t key) { b.region_key = key; }, read_only},
      {"zero-based region", type2_, MemoryStatus::kInvalidArgument,
       [](auto& b, uint32_t key) { b.region_key = key; }, zero_based},
      {"zero-based type 1", type1_, MemoryStatus::kInvalidArgument,
       [](auto& b, uint32_t) { b.access = b.access | Access::kZeroBased; }, 0},
      {"unknown right", type1_, MemoryStatus::kInvalidArgument,
       [](auto& b, uint32_t) { b.access = b.access | Access::kHugeTlb; }, 0},
      {"type 2 of no bytes", type2_, MemoryStatus::kInvalidArgument,
       [](auto& b, uint32_t) { b.length = 0; }, 0},
      {"below", type2_, MemoryStatus::kOutOfBounds, [](auto& b, uint32_t) { b.address = 0xFFFF; },
       0},
      {"above", type2_, MemoryStatus::kOutOfBounds, [](auto& b, uint32_t) { b.length = 0xF01; }, 0},
      {"wraps", type2_, MemoryStatus::kOutOfBounds,
       [](auto& b, uint32_t) { b.length = UINT64_MAX; }, 0},
  };
  for (const auto& c : kCases) {
    WindowBinding binding = Binding(c.window);
    c.change(binding, c.key);
    EXPECT_EQ(table_.BindWindow(binding, kQp17), c.status) << c.what;
  }
  EXPECT_EQ(Bind(&type2_, {2, 17}), MemoryStatus::kWrongPd) << "queue pair of another domain";
  EXPECT_EQ(Bind(&type1_), MemoryStatus::kOk) << "nothing has changed";
}

TEST_F(WindowTest, HoldsItsRegion) {
  ASSERT_EQ(Bind(&type1_), MemoryStatus::kOk);
  ReleasedMappings released;
  EXPECT_EQ(table_.Deregister(region_, &released), MemoryStatus::kInUse);
  EXPECT_EQ(table_.Reregister(region_, {.pd = 2, .access = {}, .translation = {}}, &released),
            MemoryStatus::kInUse);
  EXPECT_EQ(table_.Deregister(type1_, &released), MemoryStatus::kBadKey) << "not a region";
  EXPECT_EQ(table_.DeallocateWindow(type1_ >> 8), MemoryStatus::kOk);
  EXPECT_EQ(Use(type1_), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.DeallocateWindow(type1_ >> 8), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.DeallocateWindow(region_ >> 8), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.Deregister(region_, &released), MemoryStatus::kOk);
}

TEST_F(WindowTest, InvalidateTakesTypeTwoAlone) {
  ASSERT_EQ(Bind(&type1_), MemoryStatus::kOk);
  EXPECT_EQ(table_.Invalidate(type1_, kQp17), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(table_.Invalidate(region_, kQp17), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(table_.Invalidate(type2_ + 1, kQp17), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.Invalidate(type2_, {2, 17}), MemoryStatus::kWrongPd);
}

TEST_F(WindowTest, FollowsItsRegionsMemory) {
  ASSERT_EQ(Bind(&type2_), MemoryStatus::kOk);
  ReleasedMappings released;
  table_.UseProcessVm(0, 0x20000, &released);
  EXPECT_EQ(Use(type2_), MemoryStatus::kOk);
  EXPECT_EQ(table_.CheckKey(type2_, kQp17, Access::kRemoteRead), MemoryStatus::kOk);
  EXPECT_EQ(table_.CheckKey(type2_, kQp18, Access::kRemoteRead), MemoryStatus::kWrongQp);
  EXPECT_EQ(table_.CheckKey(region_, kQp17, Access::kRemoteRead), MemoryStatus::kNoPermission);
  EXPECT_EQ(table_.CheckKey(region_ + 1, kQp17, Access::kNone), MemoryStatus::kBadKey);
}

}  // namespace
}  // namespace roci::memory
