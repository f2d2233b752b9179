// List regions: valid registrations, the access that the key gives, and invalidation.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "memory/copy.h"
#include "memory/key_table.h"
#include "tests/unit/memory/forked_app.h"

namespace roci::memory {
namespace {

constexpr uint32_t kPd = 3;
constexpr uint32_t kOtherPd = 4;
constexpr AccessContext kContext{kPd, 17};
constexpr Access kAll =
    Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kRemoteAtomic;

class ListsTest : public ::testing::Test {
 protected:
  // A region accessed by process_vm, so that segments contain the program's addresses.
  uint32_t Region(uint64_t va, uint64_t length, Access access = Access::kLocalWrite,
                  uint32_t pd = kPd) {
    uint32_t key = 0;
    EXPECT_EQ(table_.Register(pd, access, {va, length, va, {}}, &key), MemoryStatus::kOk);
    return key;
  }
  uint32_t List(uint32_t max_runs = 4) {
    uint32_t key = 0;
    EXPECT_EQ(table_.AllocateList(kPd, max_runs, &key), MemoryStatus::kOk);
    return key;
  }
  MemoryStatus Register(uint32_t key, std::vector<ListRun> runs, Access access = kAll,
                        uint64_t iova = 0x5000, AccessContext context = kContext) {
    return table_.RegisterList({key, access, iova, runs}, context);
  }
  MemoryStatus Resolve(uint32_t key, uint64_t address, uint32_t length,
                       Access need = Access::kRemoteWrite) {
    out_.Clear();
    return table_.Resolve(key, kContext, address, length, need, out_);
  }

  KeyTable table_{nullptr, 64};
  SegmentList out_;
};

TEST_F(ListsTest, GrantsNothingBeforeItIsRegisteredAndItsPartsAfterwards) {
  const uint32_t a = Region(0x10000, 0x1000);
  const uint32_t b = Region(0x20000, 0x1000);
  const uint32_t list = List();
  EXPECT_EQ(Resolve(list, 0, 1, Access::kNone), MemoryStatus::kBadKey);
  ASSERT_EQ(Register(list, {{0x10010, 16, a}, {0x20000, 100, b}, {0x10800, 1, a}}),
            MemoryStatus::kOk);
  ASSERT_EQ(Resolve(list, 0x5000, 117), MemoryStatus::kOk);
  ASSERT_EQ(out_.size(), 3U);
  EXPECT_EQ(out_[0].remote_va, 0x10010U);
  EXPECT_EQ(out_[0].length, 16U);
  EXPECT_EQ(out_[1].remote_va, 0x20000U);
  EXPECT_EQ(out_[1].length, 100U);
  EXPECT_EQ(out_[2].remote_va, 0x10800U);
  ASSERT_EQ(Resolve(list, 0x5000 + 15, 2), MemoryStatus::kOk);
  EXPECT_EQ(out_[0].remote_va, 0x1001FU);
  EXPECT_EQ(out_[1].remote_va, 0x20000U);
  EXPECT_EQ(Resolve(list, 0x5000 + 116, 2), MemoryStatus::kOutOfBounds);
  EXPECT_EQ(Resolve(list, 0x4FFF, 2), MemoryStatus::kOutOfBounds);
  EXPECT_TRUE(out_.empty());
}

TEST_F(ListsTest, AKeyIsGoodFromItsRegistrationToItsInvalidation) {
  const uint32_t a = Region(0x10000, 0x1000);
  const uint32_t list = List();
  const uint32_t next = (list & ~0xFFU) | ((list + 5) & 0xFF);
  ASSERT_EQ(Register(next, {{0x10000, 10, a}}), MemoryStatus::kOk);
  EXPECT_EQ(Resolve(list, 0x5000, 1), MemoryStatus::kBadKey);
  EXPECT_EQ(Resolve(next, 0x5000, 1), MemoryStatus::kOk);
  EXPECT_EQ(Register(list, {{0x10000, 10, a}}), MemoryStatus::kInUse);
  EXPECT_EQ(table_.Invalidate(list, kContext), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.Invalidate(next, {kOtherPd, 17}), MemoryStatus::kWrongPd);
  EXPECT_EQ(table_.Invalidate(next, {kPd, 99}), MemoryStatus::kOk);  // any queue pair may
  EXPECT_EQ(Resolve(next, 0x5000, 1), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.CheckKey(next, kContext, Access::kNone), MemoryStatus::kBadKey);
  EXPECT_EQ(Register(list, {{0x10000, 10, a}}), MemoryStatus::kOk);
}

TEST_F(ListsTest, RefusesInvalidRuns) {
  const uint32_t a = Region(0x10000, 0x1000);
  const uint32_t read_only = Region(0x20000, 0x1000, Access::kNone);
  const uint32_t foreign = Region(0x30000, 0x1000, Access::kLocalWrite, kOtherPd);
  const uint32_t list = List(2);
  const uint32_t other = List(2);
  ASSERT_EQ(Register(other, {{0x10000, 10, a}}), MemoryStatus::kOk);
  uint32_t window = 0;
  ASSERT_EQ(table_.AllocateWindow(kPd, WindowType::kType2, &window), MemoryStatus::kOk);
  uint32_t null = 0;
  ASSERT_EQ(table_.RegisterNull(kPd, &null), MemoryStatus::kOk);

  EXPECT_EQ(Register(list, {}), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(Register(list, {{0x10000, 1, a}, {0x10000, 1, a}, {0x10000, 1, a}}),
            MemoryStatus::kInvalidArgument);
  EXPECT_EQ(Register(list, {{0x10000, 0, a}}), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(Register(list, {{0x10000, 0x1001, a}}), MemoryStatus::kOutOfBounds);
  EXPECT_EQ(Register(list, {{0xFFFF, 2, a}}), MemoryStatus::kOutOfBounds);
  EXPECT_EQ(Register(list, {{0x10000, 1, a + 1}}), MemoryStatus::kBadKey);
  EXPECT_EQ(Register(list, {{0x5000, 1, other}}), MemoryStatus::kBadKey);
  EXPECT_EQ(Register(list, {{0, 1, window}}), MemoryStatus::kBadKey);
  EXPECT_EQ(Register(list, {{0, 1, null}}), MemoryStatus::kBadKey);
  EXPECT_EQ(Register(list, {{0x30000, 1, foreign}}), MemoryStatus::kWrongPd);
  EXPECT_EQ(Register(list, {{0x20000, 1, read_only}}), MemoryStatus::kNoPermission);
  EXPECT_EQ(Register(list, {{0x10000, 2, a}}, kAll, UINT64_MAX), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(Register(list, {{0x10000, 2, a}}, Access::kRemoteWrite),
            MemoryStatus::kInvalidArgument);
  EXPECT_EQ(Register(list, {{0x10000, 2, a}}, Access::kWindowBind), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(Register(list, {{0x10000, 2, a}}, kAll, 0, {kOtherPd, 1}), MemoryStatus::kWrongPd);
  EXPECT_EQ(Register(a, {{0x10000, 2, a}}), MemoryStatus::kBadKey);
  EXPECT_EQ(Register(window, {{0x10000, 2, a}}), MemoryStatus::kBadKey);
  EXPECT_EQ(Resolve(list, 0x5000, 1), MemoryStatus::kBadKey);
  EXPECT_EQ(Register(list, {{0x20000, 1, read_only}}, Access::kRemoteRead), MemoryStatus::kOk);
  EXPECT_EQ(Resolve(list, 0x5000, 1), MemoryStatus::kNoPermission);
  EXPECT_EQ(Resolve(list, 0x5000, 1, Access::kRemoteRead), MemoryStatus::kOk);
}

TEST_F(ListsTest, DeregisteringARegionInvalidatesItsRuns) {
  const uint32_t a = Region(0x10000, 0x1000);
  const uint32_t b = Region(0x20000, 0x1000);
  const uint32_t list = List();
  ASSERT_EQ(Register(list, {{0x10000, 10, a}, {0x20000, 10, b}}), MemoryStatus::kOk);
  ReleasedMappings released;
  ASSERT_EQ(table_.Deregister(b, &released), MemoryStatus::kOk);
  EXPECT_EQ(Resolve(list, 0x5000, 10), MemoryStatus::kOk);
  EXPECT_EQ(Resolve(list, 0x5000, 11), MemoryStatus::kBadKey);
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(table_.Deregister(list, &released), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.FreeList(a >> 8), MemoryStatus::kBadKey);
  EXPECT_EQ(table_.FreeList(list >> 8), MemoryStatus::kOk);
  EXPECT_EQ(table_.FreeList(list >> 8), MemoryStatus::kBadKey);
  EXPECT_EQ(Resolve(list, 0x5000, 1), MemoryStatus::kBadKey);
}

TEST_F(ListsTest, EveryByteIsWhereTheListSays) {
  std::mt19937 random(1);
  const uint32_t a = Region(0x100000, 0x10000);
  for (int round = 0; round < 200; ++round) {
    const uint32_t list = List(8);
    std::vector<ListRun> runs(1 + random() % 8);
    std::vector<uint64_t> bytes;
    for (ListRun& run : runs) {
      run = {0x100000 + random() % 0x8000, static_cast<uint32_t>(1 + random() % 100), a};
      for (uint32_t i = 0; i < run.length; ++i) bytes.push_back(run.address + i);
    }
    ASSERT_EQ(Register(list, runs), MemoryStatus::kOk);
    for (int probe = 0; probe < 50; ++probe) {
      const size_t from = random() % bytes.size();
      const size_t length = 1 + random() % (bytes.size() - from);
      ASSERT_EQ(Resolve(list, 0x5000 + from, static_cast<uint32_t>(length)), MemoryStatus::kOk);
      size_t at = from;
      for (const Segment& segment : out_) {
        for (uint32_t i = 0; i < segment.length; ++i) {
          ASSERT_EQ(segment.remote_va + i, bytes[at++]);
        }
      }
      ASSERT_EQ(at, from + length);
    }
    ASSERT_EQ(table_.FreeList(list >> 8), MemoryStatus::kOk);
  }
}

// More runs than a segment list can hold, and requests whose scatter/gather elements each have many
// runs.
TEST(ManyRuns, AreCopiedByTheList) {
  constexpr uint32_t kRuns = 500;
  constexpr size_t kLength = 65536;
  ForkedApp app([](Channel& channel) {
    std::vector<std::byte> memory(kLength);
    FillPattern(memory.data(), kLength, 1);
    channel.Send(reinterpret_cast<uint64_t>(memory.data()));
    channel.Receive();
  });
  const uint64_t va = app.channel().Receive();
  const std::unique_ptr<AppMemory> memory = app.Open();
  KeyTable table(memory.get(), 64);
  uint32_t region = 0;
  ASSERT_EQ(table.Register(kPd, kAll, {va, kLength, va, {}}, &region), MemoryStatus::kOk);
  uint32_t list = 0;
  ASSERT_EQ(table.AllocateList(kPd, kRuns, &list), MemoryStatus::kOk);
  // Runs of 1 to 8 bytes, at descending addresses.
  std::vector<ListRun> runs(kRuns);
  std::vector<uint64_t> places;
  for (uint32_t i = 0; i < kRuns; ++i) {
    const uint64_t offset = kLength - 100 * (i + 1);
    runs[i] = {va + offset, 1 + i % 8, region};
    for (uint32_t k = 0; k < runs[i].length; ++k) places.push_back(offset + k);
  }
  ASSERT_EQ(table.RegisterList({list, kAll, 0, runs}, kContext), MemoryStatus::kOk);

  SegmentList segments;
  for (uint32_t part = 0; part < 32; ++part) {
    const uint32_t at = part * 50;
    ASSERT_EQ(table.Resolve(list, kContext, at, 50, Access::kRemoteRead, segments),
              MemoryStatus::kOk);
  }
  std::vector<std::byte> bytes(32 * 50);
  ASSERT_EQ(CopyOut(segments, bytes), MemoryStatus::kOk);
  for (size_t i = 0; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], PatternByte(1, places[i]));

  segments.Clear();
  bytes.resize(places.size());
  FillPattern(bytes.data(), bytes.size(), 2);
  ASSERT_EQ(table.Resolve(list, kContext, 0, static_cast<uint32_t>(bytes.size()),
                          Access::kRemoteWrite, segments),
            MemoryStatus::kOk);
  EXPECT_TRUE(segments.CopiesItself());
  ASSERT_EQ(CopyIn(segments, bytes), MemoryStatus::kOk);
  std::vector<std::byte> all(kLength);
  ASSERT_EQ(memory->Read(va, all), MemoryStatus::kOk);
  for (size_t i = 0; i < places.size(); ++i) ASSERT_EQ(all[places[i]], PatternByte(2, i));
  EXPECT_EQ(all[places[0] - 1], PatternByte(1, places[0] - 1));

  ReleasedMappings released;
  ASSERT_EQ(table.Deregister(region, &released), MemoryStatus::kOk);
  EXPECT_EQ(CopyIn(segments, bytes), MemoryStatus::kBadKey) << "found while it is copied";
  app.channel().Send(0);
}

}  // namespace
}  // namespace roci::memory
