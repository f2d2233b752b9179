// Asynchronous syncs to disk: reports to the owner, limits for each charged_to, and syncs given up.
#include "dataplane/shard/durable_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/on_shard.h"

namespace roci::dataplane {
namespace {

const OnShard& kShard = OnShardInTests::Token();

using Started = DurableWriter::Started;

struct Ended {
  void* owner;
  const void* charged_to;
  bool ok;
};

class DurableWriterTest : public ::testing::Test {
 protected:
  DurableWriterTest() {
    const int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, 4096), 0);
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    int error = 0;
    file_ = memory::MappedFile::Map(fd, 0, 4096, true, &error);
    close(fd);
  }

  Started Start(void* owner, const void* charged_to) {
    memory::DurableRange range;
    range.parts[0] = {file_, 0, 4096};
    range.count = 1;
    const Started started = writer_.Start(kShard, owner, charged_to, range);
    EXPECT_EQ(range.count, started == Started::kYes ? 0u : 1u);
    return started;
  }
  // Waits until `count` syncs have ended.
  std::vector<Ended> Collect(size_t count) {
    std::vector<Ended> all;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (all.size() < count && std::chrono::steady_clock::now() < end) {
      if (!writer_.HasDone(kShard)) {
        std::this_thread::yield();
        continue;
      }
      writer_.Collect(kShard, [&](void* owner, const void* charged_to, bool ok) {
        all.push_back({owner, charged_to, ok});
      });
    }
    EXPECT_EQ(all.size(), count);
    return all;
  }

  std::shared_ptr<memory::MappedFile> file_;
  std::atomic<uint32_t> told_{0};
  DurableWriter writer_{[this] { told_.fetch_add(1); }};
  int owners_[200], programs_[200];
};

TEST_F(DurableWriterTest, ReportsCompletionToTheOwner) {
  ASSERT_TRUE(writer_.StartThreads());
  ASSERT_TRUE(writer_.StartThreads());
  EXPECT_FALSE(writer_.HasDone(kShard));
  ASSERT_EQ(Start(&owners_[0], &programs_[0]), Started::kYes);
  const auto ended = Collect(1);
  EXPECT_EQ(ended.at(0).owner, &owners_[0]);
  EXPECT_EQ(ended.at(0).charged_to, &programs_[0]);
  EXPECT_TRUE(ended.at(0).ok);
  EXPECT_FALSE(writer_.HasDone(kShard));
  EXPECT_EQ(file_.use_count(), 1) << "the thread releases the file";
}

TEST_F(DurableWriterTest, LimitsTheSlotsOfAProgram) {
  for (uint32_t i = 0; i < DurableWriter::kSlotsPerProgram; ++i) {
    EXPECT_EQ(Start(&owners_[i], &programs_[0]), Started::kYes);
  }
  EXPECT_EQ(Start(&owners_[9], &programs_[0]), Started::kProgramFull);
  uint32_t started = DurableWriter::kSlotsPerProgram;
  for (uint32_t i = 1; started < DurableWriter::kSlots; ++i, ++started) {
    ASSERT_EQ(Start(&owners_[10 + i], &programs_[i]), Started::kYes);
  }
  EXPECT_EQ(Start(&owners_[100], &programs_[150]), Started::kFull);
  EXPECT_EQ(Start(&owners_[9], &programs_[0]), Started::kProgramFull);
  ASSERT_TRUE(writer_.StartThreads());
  EXPECT_EQ(Collect(started).size(), started);
  EXPECT_EQ(Start(&owners_[9], &programs_[0]), Started::kYes);
  EXPECT_EQ(Collect(1).at(0).owner, &owners_[9]);
}

TEST_F(DurableWriterTest, DoesNotReportSyncsThatWereGivenUp) {
  ASSERT_EQ(Start(&owners_[0], &programs_[0]), Started::kYes);
  ASSERT_EQ(Start(&owners_[1], &programs_[1]), Started::kYes);
  writer_.GiveUp(kShard, &owners_[0]);
  // A new sync of the same owner does not get the report of the old one.
  ASSERT_EQ(Start(&owners_[1], &programs_[2]), Started::kYes);
  ASSERT_TRUE(writer_.StartThreads());
  const auto ended = Collect(3);
  EXPECT_EQ(std::count_if(ended.begin(), ended.end(), [](const Ended& e) { return !e.owner; }), 2);
  for (const Ended& e : ended) {
    EXPECT_EQ(e.owner, e.charged_to == &programs_[2] ? &owners_[1] : nullptr);
  }
}

TEST_F(DurableWriterTest, CompletesManySyncs) {
  ASSERT_TRUE(writer_.StartThreads());
  uint32_t started = 0, ended = 0;
  while (ended < 5000) {
    if (started < 5000 &&
        Start(&owners_[started % 200], &programs_[started % 200]) == Started::kYes) {
      ++started;
    }
    writer_.Collect(kShard, [&](void*, const void*, bool ok) {
      EXPECT_TRUE(ok);
      ++ended;
    });
  }
  EXPECT_FALSE(writer_.HasDone(kShard));
  while (told_.load() < 5000) std::this_thread::yield();
}

TEST_F(DurableWriterTest, CanBeDestroyedWithSyncsPending) {
  for (int i = 0; i < 20; ++i) ASSERT_EQ(Start(&owners_[i], &programs_[i]), Started::kYes);
  ASSERT_TRUE(writer_.StartThreads());
}

}  // namespace
}  // namespace roci::dataplane
