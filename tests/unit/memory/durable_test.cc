// Regions that can be made durable: accepted memory, and the files to sync for a range.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "memory/copy.h"
#include "memory/key_table.h"

namespace roci::memory {
namespace {

constexpr uint32_t kPd = 1;
constexpr AccessContext kContext{.pd = kPd, .qpn = 17};
constexpr uint64_t kPage = 4096;
constexpr uint64_t kVa = 0x10000;
constexpr uint64_t kIova = 0x7000;
constexpr Access kDurable = Access::kLocalWrite | Access::kFlushPersistent;

// An unlinked file in the current directory, which has to be on a disk.
int DiskFile(uint64_t bytes) {
  std::string name = "durable-test-XXXXXX";
  const int fd = mkostemp(name.data(), O_CLOEXEC);
  EXPECT_GE(fd, 0);
  unlink(name.c_str());
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(bytes)), 0);
  return fd;
}

std::shared_ptr<MappedFile> Map(int fd, uint64_t bytes, bool writable = true) {
  int error = 0;
  auto mapping = MappedFile::Map(fd, 0, bytes, writable, &error);
  EXPECT_NE(mapping, nullptr) << error
                              << ": are the tests run on a disk of ext4, xfs, btrfs, f2fs?";
  return mapping;
}

class DurableTest : public ::testing::Test {
 protected:
  DurableTest() : fd_(DiskFile(4 * kPage)), file_(Map(fd_, 4 * kPage)) {}
  void TearDown() override { close(fd_); }

  // Three runs of the file, not in file order.
  Translation Runs() const {
    return {.va = kVa,
            .length = 3 * kPage,
            .iova = kIova,
            .extents = {{kVa, kPage, file_, 2 * kPage},
                        {kVa + kPage, kPage, file_, 0},
                        {kVa + 2 * kPage, kPage, file_, 3 * kPage}}};
  }
  MemoryStatus Find(uint64_t address, uint32_t length, bool whole = false) {
    return table_.FindDurable(key_, kContext, address, length, whole, &range_);
  }

  int fd_;
  std::shared_ptr<MappedFile> file_;
  KeyTable table_{nullptr, 8};
  uint32_t key_ = 0;
  DurableRange range_;
  ReleasedMappings released_;
};

TEST_F(DurableTest, OnlyFilesOfDisksAreTaken) {
  EXPECT_TRUE(file_->durable());
  EXPECT_FALSE(Map(fd_, kPage, false)->durable()) << "what may not be written";
  const int memfd = memfd_create("t", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(memfd, kPage), 0);
  auto memory = Map(memfd, kPage);
  close(memfd);
  EXPECT_FALSE(memory->durable());

  EXPECT_EQ(table_.Register(kPd, kDurable, Runs(), &key_), MemoryStatus::kOk);
  Translation some = Runs();
  some.extents[1].mapping = nullptr;
  EXPECT_EQ(table_.Register(kPd, kDurable, some, &key_), MemoryStatus::kInvalidArgument);
  some.extents[1] = {kVa + kPage, kPage, memory, 0};
  EXPECT_EQ(table_.Register(kPd, kDurable, some, &key_), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(table_.Register(kPd, Access::kLocalWrite, some, &key_), MemoryStatus::kOk);
  some.extents.clear();
  EXPECT_EQ(table_.Register(kPd, kDurable, some, &key_), MemoryStatus::kInvalidArgument);
}

// An lcore would wait for the disk if it accessed a page that is not in memory.
TEST_F(DurableTest, LcoresDoNotAccessItDirectly) {
  ASSERT_EQ(table_.Register(kPd, kDurable, Runs(), &key_), MemoryStatus::kOk);
  SegmentList segments;
  ASSERT_EQ(table_.Resolve(key_, kContext, kIova + kPage - 10, 20, Access::kLocalWrite, segments),
            MemoryStatus::kOk);
  EXPECT_TRUE(std::none_of(segments.begin(), segments.end(),
                           [](const Segment& each) { return each.direct != nullptr; }));
  // Copies access the file itself, wherever the program has mapped it.
  const std::array<std::byte, 20> written{std::byte{7}};
  ASSERT_EQ(CopyIn(segments, written), MemoryStatus::kOk);
  std::array<std::byte, 1> read{};
  ASSERT_EQ(pread(fd_, read.data(), 1, 3 * kPage - 10), 1);
  EXPECT_EQ(read[0], std::byte{7});
  uint32_t key = 0;
  const Translation one{
      .va = kVa, .length = kPage, .iova = kIova, .extents = {{kVa, kPage, file_, 0}}};
  ASSERT_EQ(table_.Register(kPd, kDurable, one, &key), MemoryStatus::kOk);
  segments.Clear();
  ASSERT_EQ(table_.Resolve(key, kContext, kIova, 20, Access::kLocalWrite, segments),
            MemoryStatus::kOk);
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].direct, nullptr);
  EXPECT_EQ(table_.Info(key)->direct_length, 0u);
}

TEST_F(DurableTest, TheRightNeedsACheckOfTheMemory) {
  ASSERT_EQ(table_.Register(kPd, Access::kLocalWrite, Runs(), &key_), MemoryStatus::kOk);
  RegionChange change;
  change.access = kDurable;
  EXPECT_EQ(table_.Reregister(key_, change, &released_), MemoryStatus::kInvalidArgument);
  EXPECT_EQ(Find(kIova, 1), MemoryStatus::kNoPermission);
  change.translation = Runs();
  EXPECT_EQ(table_.Reregister(key_, change, &released_), MemoryStatus::kOk);
  EXPECT_EQ(Find(kIova, 1), MemoryStatus::kOk);
  // If the access flags do not change, the new memory must be suitable, too.
  change.access.reset();
  change.translation->extents.clear();
  EXPECT_EQ(table_.Reregister(key_, change, &released_), MemoryStatus::kInvalidArgument);
  change.access = Access::kLocalWrite;
  EXPECT_EQ(table_.Reregister(key_, change, &released_), MemoryStatus::kOk);
}

TEST_F(DurableTest, FindsThePartsOfFiles) {
  ASSERT_EQ(table_.Register(kPd, kDurable, Runs(), &key_), MemoryStatus::kOk);
  ASSERT_EQ(Find(kIova + kPage - 10, 20), MemoryStatus::kOk);
  ASSERT_EQ(range_.count, 2u);
  EXPECT_EQ(range_.parts[0].file_offset, 3 * kPage - 10);
  EXPECT_EQ(range_.parts[0].length, 10u);
  EXPECT_EQ(range_.parts[1].file_offset, 0u);
  EXPECT_EQ(range_.parts[1].length, 10u);
  ASSERT_EQ(Find(0, 0, true), MemoryStatus::kOk);
  ASSERT_EQ(range_.count, 3u);
  EXPECT_EQ(range_.parts[2].file_offset, 3 * kPage);
  EXPECT_EQ(range_.parts[2].length, kPage);
  EXPECT_TRUE(range_.Sync());
  EXPECT_EQ(range_.count, 0u);
  EXPECT_EQ(range_.parts[0].mapping, nullptr);

  EXPECT_EQ(Find(kIova + 3 * kPage - 1, 2), MemoryStatus::kOutOfBounds);
  EXPECT_EQ(table_.FindDurable(key_, {.pd = 2, .qpn = 17}, kIova, 1, false, &range_),
            MemoryStatus::kWrongPd);
  EXPECT_EQ(table_.FindDurable(key_ + 1, kContext, kIova, 1, false, &range_),
            MemoryStatus::kBadKey);
}

TEST_F(DurableTest, RangeOutlivesTheRegion) {
  ASSERT_EQ(table_.Register(kPd, kDurable, Runs(), &key_), MemoryStatus::kOk);
  ASSERT_EQ(Find(kIova, 1), MemoryStatus::kOk);
  ASSERT_EQ(table_.Deregister(key_, &released_), MemoryStatus::kOk);
  released_.clear();
  file_.reset();
  EXPECT_TRUE(range_.Sync());
  EXPECT_EQ(Find(kIova, 1), MemoryStatus::kBadKey);
}

TEST_F(DurableTest, NothingIsDurableAnyMoreWithoutTheFile) {
  ASSERT_EQ(table_.Register(kPd, kDurable, Runs(), &key_), MemoryStatus::kOk);
  table_.UseProcessVm(kVa, kPage, &released_);
  EXPECT_EQ(Find(kIova + kPage, 1), MemoryStatus::kOk);
  EXPECT_EQ(Find(kIova + kPage - 1, 2), MemoryStatus::kFault);
  EXPECT_EQ(range_.count, 0u);
}

// Truncating the file before a page loses the bytes written to that page.
TEST_F(DurableTest, TruncatedFilesFail) {
  ASSERT_EQ(table_.Register(kPd, kDurable, Runs(), &key_), MemoryStatus::kOk);
  ASSERT_EQ(ftruncate(fd_, kPage), 0);
  *reinterpret_cast<volatile char*>(file_->At(3 * kPage)) = 1;
  ASSERT_EQ(Find(kIova, 1), MemoryStatus::kOk);
  EXPECT_FALSE(range_.Sync());
}

TEST_F(DurableTest, WindowsPassTheRightOn) {
  constexpr Access kBind = kDurable | Access::kWindowBind;
  ASSERT_EQ(table_.Register(kPd, kBind, Runs(), &key_), MemoryStatus::kOk);
  uint32_t window = 0;
  ASSERT_EQ(table_.AllocateWindow(kPd, WindowType::kType1, &window), MemoryStatus::kOk);
  WindowBinding binding{.window = window >> 8,
                        .new_key = 5,
                        .region_key = key_,
                        .access = Access::kFlushPersistent,
                        .address = kIova + kPage,
                        .length = 100};
  ASSERT_EQ(table_.BindWindow(binding, kContext), MemoryStatus::kOk);
  const uint32_t region_key = std::exchange(key_, (window & ~0xFFu) | 5);
  ASSERT_EQ(Find(0, 0, true), MemoryStatus::kOk);
  ASSERT_EQ(range_.count, 1u);
  EXPECT_EQ(range_.parts[0].file_offset, 0u);
  EXPECT_EQ(range_.parts[0].length, 100u);
  binding.access = Access::kRemoteRead;
  binding.new_key = 6;
  ASSERT_EQ(table_.BindWindow(binding, kContext), MemoryStatus::kOk);
  key_ = (window & ~0xFFu) | 6;
  EXPECT_EQ(Find(kIova + kPage, 1), MemoryStatus::kNoPermission);
  // A window grants no more than its region.
  binding.access = Access::kFlushPersistent;
  binding.new_key = 7;
  ASSERT_EQ(table_.DeallocateWindow(window >> 8), MemoryStatus::kOk);
  ASSERT_EQ(table_.Deregister(region_key, &released_), MemoryStatus::kOk);
  ASSERT_EQ(table_.Register(kPd, Access::kLocalWrite | Access::kWindowBind, Runs(), &key_),
            MemoryStatus::kOk);
  ASSERT_EQ(table_.AllocateWindow(kPd, WindowType::kType1, &window), MemoryStatus::kOk);
  binding.window = window >> 8;
  binding.region_key = key_;
  EXPECT_EQ(table_.BindWindow(binding, kContext), MemoryStatus::kNoPermission);
}

}  // namespace
}  // namespace roci::memory
