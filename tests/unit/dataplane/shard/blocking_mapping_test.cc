// Mapped memory whose pages do not come (here by userfaultfd; also while a program punches holes
// into the file) makes the lcore sleep. From then on system calls access all mapped memory of the
// user, and the lcore waits no more.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "dataplane/shard/lcore.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/shard/connected_nodes.h"
#include "tests/unit/waiting_memory.h"

namespace roci::testing {
namespace {

constexpr size_t kSecondAt = kWaitingAt + kWaitingBytes;

class BlockingMapping : public ::testing::Test {
 protected:
  static uint64_t Blocked() { return TestLcore(0).Snapshot().memory_blocked; }
  static uint64_t DirectBytes(Node& node) {
    uint64_t bytes = 0;
    for (const memory::RegionInfo& info : node.client().Do(dataplane::ListRegions{})) {
      bytes += info.direct_length;
    }
    return bytes;
  }
  // The lcore sleeps until `memory` is served.
  void Block(End& end, WaitingMemory& memory, size_t offset) {
    const uint64_t before = Blocked();
    end.Post(ROCI_ABI_WR_RDMA_WRITE, 0, 64, offset);
    for (int i = 0; i < 5000 && Blocked() == before; ++i) usleep(1000);
    EXPECT_EQ(Blocked(), before + 1);
    EXPECT_TRUE(end.IsQuiet());
    memory.Serve(std::byte{0});
    end.ExpectSuccess();
  }

  dataplane::Wire wire_{TestDataplane()};
  End victim_{wire_, 1, Access::kMapped};
};

TEST_F(BlockingMapping, IsAccessedBySystemCallsFromThenOn) {
  End end(wire_, 11, Access::kMapped);
  WaitingMemory first(end.b().mapped() + kWaitingAt, kWaitingBytes);
  WaitingMemory second(end.b().mapped() + kSecondAt, kWaitingBytes);
  if (!first.works() || !second.works()) {
    GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
  }
  Block(end, first, kWaitingAt);
  EXPECT_EQ(DirectBytes(end.b()), 0u);
  EXPECT_EQ(DirectBytes(end.a()), uint64_t{1} << 20) << "of another user";
  const uint64_t blocked = Blocked();
  end.Post(ROCI_ABI_WR_RDMA_WRITE, 0, 64, kSecondAt);
  victim_.Read();
  EXPECT_TRUE(end.IsQuiet());
  EXPECT_TRUE(end.b().client().IsStalled());
  second.Serve(std::byte{0});
  end.ExpectSuccess();
  EXPECT_EQ(Blocked(), blocked);
}

TEST_F(BlockingMapping, KeepsItsContents) {
  End end(wire_, 11, Access::kMapped);
  WaitingMemory memory(end.b().mapped() + kWaitingAt, kWaitingBytes);
  if (!memory.works()) GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
  std::memset(end.b().memory() + 64, 0x44, 100);
  Block(end, memory, kWaitingAt);
  ASSERT_EQ(DirectBytes(end.b()), 0u);
  end.Post(ROCI_ABI_WR_RDMA_READ, 8192, 100, 64);
  end.ExpectSuccess();
  EXPECT_EQ(std::memcmp(end.a().memory() + 8192, end.b().memory() + 64, 100), 0);
  std::memset(end.a().memory(), 0x55, 20000);
  end.Post(ROCI_ABI_WR_RDMA_WRITE, 0, 20000, 4096);
  end.ExpectSuccess();
  EXPECT_EQ(std::memcmp(end.a().memory(), end.b().memory() + 4096, 20000), 0);
  end.Post(ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD, 16384, 8, 4096);
  end.ExpectSuccess();
  EXPECT_EQ(end.b().memory()[4096], std::byte{0x56});
}

TEST_F(BlockingMapping, OfManyRegionsIsGivenUpInAllOfThem) {
  constexpr uint32_t kRegions = 5000;
  End end(wire_, 11, Access::kMapped);
  WaitingMemory memory(end.b().mapped() + kWaitingAt, kWaitingBytes);
  if (!memory.works()) GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
  auto other = dataplane::SharedMemory::Create("test-regions", 4096);
  ASSERT_TRUE(other.ok());
  int error = 0;
  const auto mapping = memory::MappedFile::Map(other->fd(), 0, 4096, true, &error);
  ASSERT_NE(mapping, nullptr) << error;
  const auto add = [&] {
    memory::Translation translation{.va = 0x10000000,
                                    .length = 4096,
                                    .iova = 0x10000000,
                                    .extents = {{0x10000000, 4096, mapping, 0}},
                                    .app = nullptr};
    return end.b()
        .client()
        .Do(dataplane::RegisterRegion{Node::kPd, memory::Access::kLocalWrite,
                                      std::move(translation)})
        .status;
  };
  for (uint32_t i = 0; i < kRegions; ++i) ASSERT_EQ(add(), memory::MemoryStatus::kOk) << i;
  EXPECT_EQ(DirectBytes(end.b()), (uint64_t{1} << 20) + uint64_t{kRegions} * 4096);
  Block(end, memory, kWaitingAt);
  for (int i = 0; i < 16; ++i) end.b().lcore().FinishRound();
  EXPECT_EQ(DirectBytes(end.b()), 0u);
  ASSERT_EQ(add(), memory::MemoryStatus::kOk);
  EXPECT_EQ(DirectBytes(end.b()), 0u) << "of a region that was registered later";
}

}  // namespace
}  // namespace roci::testing
