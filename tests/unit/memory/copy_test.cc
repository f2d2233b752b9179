// Copies and atomics through both kinds of segments, and batches of copies.
#include "memory/copy.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "memory/copy_batch.h"
#include "tests/unit/memory/forked_app.h"

namespace roci::memory {
namespace {

constexpr size_t kLength = 4 * 4096;

// A program with kLength bytes of private memory that hold pattern 1, followed by a hole. For each
// pattern number that it receives, the program sends 1 if its memory holds that pattern, else 0.
class Fixture : public testing::Test {
 protected:
  Fixture()
      : app_([](Channel& channel) {
          auto* at = static_cast<std::byte*>(mmap(nullptr, kLength + 4096, PROT_READ | PROT_WRITE,
                                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
          munmap(at + kLength, 4096);
          FillPattern(at, kLength, 1);
          channel.Send(reinterpret_cast<uint64_t>(at));
          for (;;) channel.Send(HasPattern(at, kLength, channel.Receive()));
        }),
        va_(app_.channel().Receive()),
        memory_(app_.Open()) {}

  bool AppHasPattern(uint64_t seed) {
    app_.channel().Send(seed);
    return app_.channel().Receive() == 1;
  }
  Segment Remote(uint64_t offset, uint32_t length) const {
    return Segment::Remote(memory_.get(), va_ + offset, length);
  }

  ForkedApp app_;
  uint64_t va_;
  std::unique_ptr<AppMemory> memory_;
};

using Copy = Fixture;
using Atomics = Fixture;
using Batch = Fixture;

TEST_F(Copy, MixesDirectAndRemoteSegments) {
  std::array<std::byte, 1000> here;
  FillPattern(here.data(), here.size(), 5);
  SegmentList segments;
  segments.Append(Remote(10, 100));
  segments.Append(Segment::Direct(here.data(), 1000, nullptr));
  segments.Append(Remote(500, 50));
  segments.Append(Remote(0, 10));
  std::vector<std::byte> bytes(1160);
  ASSERT_EQ(CopyOut(segments, bytes), MemoryStatus::kOk);
  for (size_t i = 0; i < 100; ++i) ASSERT_EQ(bytes[i], PatternByte(1, 10 + i));
  ASSERT_TRUE(HasPattern(&bytes[100], 1000, 5));
  for (size_t i = 0; i < 50; ++i) ASSERT_EQ(bytes[1100 + i], PatternByte(1, 500 + i));
  ASSERT_TRUE(HasPattern(&bytes[1150], 10, 1));

  FillPattern(bytes.data(), bytes.size(), 6);
  ASSERT_EQ(CopyIn(segments, bytes), MemoryStatus::kOk);
  std::vector<std::byte> again(1160);
  ASSERT_EQ(CopyOut(segments, again), MemoryStatus::kOk);
  EXPECT_EQ(bytes, again);
  // Only the first bytes, up to the middle of a segment.
  FillPattern(bytes.data(), 400, 7);
  ASSERT_EQ(CopyIn(segments, std::span(bytes).first(400)), MemoryStatus::kOk);
  ASSERT_EQ(CopyOut(segments, again), MemoryStatus::kOk);
  EXPECT_EQ(bytes, again);
}

TEST_F(Copy, FaultIsReported) {
  SegmentList segments;
  segments.Append(Remote(0, 8));
  segments.Append(Remote(kLength - 8, 16));
  std::vector<std::byte> bytes(24);
  EXPECT_EQ(CopyIn(segments, bytes), MemoryStatus::kFault);
  EXPECT_EQ(CopyOut(segments, bytes), MemoryStatus::kFault);
  EXPECT_EQ(CopyOut(segments, std::span(bytes).first(16)), MemoryStatus::kOk);
  app_.Kill();
  EXPECT_EQ(CopyOut(segments, std::span(bytes).first(16)), MemoryStatus::kFault);
}

TEST_F(Copy, ListOfFullCapacity) {
  SegmentList segments;
  for (uint32_t i = 0; i < SegmentList::kCapacity; ++i) segments.Append(Remote(i * 64, 64));
  std::vector<std::byte> bytes(SegmentList::kCapacity * 64);
  ASSERT_EQ(CopyOut(segments, bytes), MemoryStatus::kOk);
  EXPECT_TRUE(HasPattern(bytes.data(), bytes.size(), 1));
}

void TestAtomics(const Segment& segment) {
  const Segment word = segment;
  std::array<std::byte, 8> bytes;
  const uint64_t start = 0x1122334455667788;
  std::memcpy(bytes.data(), &start, 8);
  SegmentList list;
  list.Append(word);
  ASSERT_EQ(CopyIn(list, bytes), MemoryStatus::kOk);
  AtomicResult result = FetchAndAdd(word, ~uint64_t{0});
  EXPECT_EQ(result.status, MemoryStatus::kOk);
  EXPECT_EQ(result.original, start);
  for (const uint64_t other : {start, start - 2, uint64_t{0}, ~uint64_t{0}}) {
    result = CompareAndSwap(word, other, 1);  // does not match
    EXPECT_EQ(result.original, start - 1);
  }
  result = CompareAndSwap(word, start - 1, 42);
  EXPECT_EQ(result.original, start - 1);
  result = FetchAndAdd(word, 0);
  EXPECT_EQ(result.original, 42U);
}

TEST_F(Atomics, Direct) {
  alignas(8) std::array<std::byte, 24> here{};
  TestAtomics(Segment::Direct(here.data() + 8, 8, nullptr));
  EXPECT_EQ(here[0], std::byte{0});
  EXPECT_EQ(here[16], std::byte{0});
}
TEST_F(Atomics, DirectUnaligned) {
  alignas(8) std::array<std::byte, 24> here{};
  TestAtomics(Segment::Direct(here.data() + 5, 8, nullptr));
}
TEST_F(Atomics, Remote) { TestAtomics(Remote(64, 8)); }
TEST_F(Atomics, RemoteFault) {
  EXPECT_EQ(FetchAndAdd(Remote(kLength, 8), 1).status, MemoryStatus::kFault);
  EXPECT_EQ(CompareAndSwap(Remote(kLength - 4, 8), 0, 1).status, MemoryStatus::kFault);
  EXPECT_EQ(FetchAndAdd(Remote(0, 4), 1).status, MemoryStatus::kMisaligned);
}

TEST_F(Atomics, RemoteOnesOfTwoThreadsAreAtomicTogether) {
  constexpr uint64_t kEach = 3000;
  int error = 0;
  const auto other = AppMemory::Open(memory_->pid(), -1, Reach::kAddressSpace, &error);
  ASSERT_NE(other, nullptr);
  const Segment segment = Remote(64, 8);
  const uint64_t before = FetchAndAdd(segment, 0).original;
  std::thread adder([&] {
    const Segment same = Segment::Remote(other.get(), segment.remote_va, 8);
    for (uint64_t i = 0; i < kEach; ++i) FetchAndAdd(same, 1);
  });
  for (uint64_t i = 0; i < kEach; ++i) FetchAndAdd(segment, 1);
  adder.join();
  EXPECT_EQ(FetchAndAdd(segment, 0).original, before + 2 * kEach);
}

TEST_F(Atomics, DirectIsAtomicAgainstTheApp) {
  alignas(8) std::atomic<uint64_t> word{0};
  constexpr uint64_t kRounds = 200000;
  std::thread app([&] {
    for (uint64_t i = 0; i < kRounds; ++i) word.fetch_add(1);
  });
  const Segment segment = Segment::Direct(reinterpret_cast<std::byte*>(&word), 8, nullptr);
  for (uint64_t i = 0; i < kRounds; ++i) FetchAndAdd(segment, 1);
  app.join();
  EXPECT_EQ(word.load(), 2 * kRounds);
}

TEST_F(Batch, CopiesSeveralPacketsInOneCall) {
  CopyBatch batch;
  std::vector<std::byte> bytes(kLength);
  FillPattern(bytes.data(), kLength, 2);
  for (uint32_t i = 0; i < 16; ++i) {
    SegmentList segments;
    segments.Append(Remote(i * 1024, 24));
    segments.Append(Remote(i * 1024 + 24, 1000));
    ASSERT_EQ(batch.AddIn(segments, std::span(bytes).subspan(i * 1024, 1024), i),
              MemoryStatus::kOk);
  }
  EXPECT_EQ(batch.size(), 32U);
  EXPECT_TRUE(AppHasPattern(1));  // nothing is copied before the flush
  EXPECT_TRUE(batch.Flush().empty());
  EXPECT_TRUE(batch.empty());
  EXPECT_TRUE(AppHasPattern(2));
}

TEST_F(Batch, LaterWritesWinAndReadsSeeThem) {
  CopyBatch batch;
  SegmentList word;
  word.Append(Remote(0, 1));
  const std::byte one{1};
  const std::byte two{2};
  std::byte read{};
  ASSERT_EQ(batch.AddOut(word, {&read, 1}, 0), MemoryStatus::kOk);
  ASSERT_EQ(batch.AddIn(word, {&one, 1}, 1), MemoryStatus::kOk);
  ASSERT_EQ(batch.AddIn(word, {&two, 1}, 2), MemoryStatus::kOk);
  EXPECT_TRUE(batch.Flush().empty());
  EXPECT_EQ(read, two);
}

TEST_F(Batch, FaultsReturnTheirTokensOnly) {
  ForkedApp other([](Channel& channel) {
    static std::byte pattern[4096];
    FillPattern(pattern, sizeof pattern, 9);
    channel.Send(reinterpret_cast<uint64_t>(pattern));
    channel.Receive();
  });
  const uint64_t other_va = other.channel().Receive();
  auto other_memory = other.Open();
  ForkedApp dying([](Channel& channel) {
    channel.Send(0);
    channel.Receive();
  });
  dying.channel().Receive();
  auto dead_memory = dying.Open();
  dying.Kill();

  CopyBatch batch;
  std::vector<std::byte> bytes(40 * 8);
  const auto add = [&](uint32_t token, const Segment& segment) {
    SegmentList segments;
    segments.Append(segment);
    ASSERT_EQ(batch.AddOut(segments, std::span(bytes).subspan(token * 8, 8), token),
              MemoryStatus::kOk);
  };
  for (uint32_t i = 0; i < 40; ++i) {
    switch (i % 4) {
      case 0:
        add(i, Remote(i * 8, 8));
        break;
      case 1:
        add(i, Remote(kLength - 4, 8));  // runs into the hole
        break;
      case 2:
        add(i, Segment::Remote(other_memory.get(), other_va + i * 8, 8));
        break;
      default:
        add(i, Segment::Remote(dead_memory.get(), other_va, 8));
    }
  }
  std::vector<bool> failed(40);
  for (const uint32_t token : batch.Flush()) failed[token] = true;
  for (uint32_t i = 0; i < 40; ++i) {
    EXPECT_EQ(failed[i], i % 2 == 1) << i;
    if (i % 2 == 1) continue;
    for (uint32_t b = 0; b < 8; ++b) {
      EXPECT_EQ(bytes[i * 8 + b], PatternByte(i % 4 == 0 ? 1 : 9, i * 8 + b));
    }
  }
}

// A copy that was reported as failed must not be executed later, when its buffer may have another
// owner. Nor may its failure be reported for another copy.
TEST_F(Batch, ACopyToATruncatedMappingLeavesNothingPending) {
  CopyBatch batch;
  std::array<std::byte, 16> there{};
  const std::atomic<bool> cut{true};
  SegmentList segments;
  segments.Append(Remote(0, 8));
  segments.Append(Segment::Direct(there.data(), 8, &cut));
  std::array<std::byte, 16> bytes{};
  EXPECT_EQ(batch.AddOut(segments, bytes, 0), MemoryStatus::kFault);
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(batch.AddIn(segments, bytes, 0), MemoryStatus::kFault);
  EXPECT_TRUE(batch.empty());
  EXPECT_TRUE(batch.Flush().empty());
  EXPECT_TRUE(AppHasPattern(1));
}

TEST_F(Batch, FullBatchRefusesAndGoesOnAfterAFlush) {
  CopyBatch batch;
  std::byte byte{};
  SegmentList one;
  one.Append(Remote(0, 1));
  for (uint32_t i = 0; i < CopyBatch::kMaxPieces; ++i) {
    ASSERT_EQ(batch.AddOut(one, {&byte, 1}, i), MemoryStatus::kOk);
  }
  EXPECT_EQ(batch.AddOut(one, {&byte, 1}, 999), MemoryStatus::kTooManySegments);
  // A copy of memory that is mapped here takes no room in the batch.
  std::byte there{7};
  SegmentList direct;
  direct.Append(Segment::Direct(&there, 1, nullptr));
  EXPECT_EQ(batch.AddOut(direct, {&byte, 1}, 999), MemoryStatus::kOk);
  EXPECT_EQ(byte, std::byte{7});
  EXPECT_TRUE(batch.Flush().empty());
  EXPECT_EQ(batch.AddOut(one, {&byte, 1}, 999), MemoryStatus::kOk);
  EXPECT_TRUE(batch.Flush().empty());
}

}  // namespace
}  // namespace roci::memory
