// Programs whose memory blocks every access (here by userfaultfd; a FUSE file or a disk does the
// same): their queue pairs wait and continue afterwards, queue pairs of other programs do not wait.
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "dataplane/shard/lcore.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/shard/connected_nodes.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/waiting_memory.h"

namespace roci::testing {
namespace {

class StalledMemory : public ::testing::Test {
 protected:
  // Whether the watch thread takes over the loop while busy threads share the processors.
  bool StallsBesideOthers() {
    const pid_t thread = TestLcore(0).thread_id();
    std::atomic<bool> stop{false};
    std::vector<std::thread> others;
    for (unsigned i = 0; i < 4 * std::thread::hardware_concurrency(); ++i) {
      others.emplace_back([&stop] {
        while (!stop) continue;
      });
    }
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(3);
         std::chrono::steady_clock::now() < end && !::testing::Test::HasFailure();) {
      // Enough requests to keep the lcore busy, so that it is preempted while it copies.
      for (int i = 0; i < 32; ++i) victim_.Post(ROCI_ABI_WR_RDMA_WRITE, 0, 256 << 10, 256 << 10);
      for (int i = 0; i < 32; ++i) victim_.Await(20'000);
    }
    stop = true;
    for (std::thread& other : others) other.join();
    return TestLcore(0).thread_id() != thread;
  }

  dataplane::Wire wire_{TestDataplane()};
  End victim_{wire_, 1};
};

struct Stall {
  const char* name;
  roci_abi_send_opcode opcode;
  bool is_remote;  // the responder's memory blocks, else the requester's
  uint32_t length;
};

void PrintTo(const Stall& stall, std::ostream* out) { *out << stall.name; }

class StalledBy : public StalledMemory, public ::testing::WithParamInterface<Stall> {};

TEST_P(StalledBy, OnlyTheQueuePairsOfTheProgramWait) {
  const Stall& stall = GetParam();
  End end(wire_, 11);
  Node& waits = stall.is_remote ? end.b() : end.a();
  WaitingMemory memory(waits.memory() + kWaitingAt, kWaitingBytes);
  if (!memory.works()) GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
  std::memset(end.a().memory(), 0x11, 4096);
  std::memset(end.b().memory(), 0x22, 4096);
  end.Post(stall.opcode, stall.is_remote ? 0 : kWaitingAt, stall.length,
           stall.is_remote ? kWaitingAt : 0);
  victim_.Read();
  EXPECT_TRUE(end.IsQuiet());
  EXPECT_TRUE(waits.client().IsStalled());
  memory.Serve(std::byte{0x33});
  end.ExpectSuccess();
  // Later messages are in order, while a copier thread copies and after the thread has ended.
  for (int i = 0; i < 100; ++i) {
    const auto byte = static_cast<std::byte>(i);
    std::memset(end.a().memory(), i, 256);
    end.Post(ROCI_ABI_WR_RDMA_WRITE, 0, 200, kWaitingAt);
    end.ExpectSuccess();
    end.Post(ROCI_ABI_WR_RDMA_READ, 8192, 200, kWaitingAt);
    end.ExpectSuccess();
    EXPECT_EQ(end.a().memory()[8192], byte);
    EXPECT_EQ(end.a().memory()[8192 + 199], byte);
    if (i == 50) usleep(1'500'000);
  }
  EXPECT_FALSE(waits.client().IsStalled());
  victim_.Read();
}

INSTANTIATE_TEST_SUITE_P(
    Memory, StalledBy,
    ::testing::Values(Stall{"WriteTarget", ROCI_ABI_WR_RDMA_WRITE, true, 20000},
                      Stall{"WriteSource", ROCI_ABI_WR_RDMA_WRITE, false, 20000},
                      Stall{"ReadTarget", ROCI_ABI_WR_RDMA_READ, true, 20000},
                      Stall{"ReadDestination", ROCI_ABI_WR_RDMA_READ, false, 20000},
                      Stall{"Atomic", ROCI_ABI_WR_ATOMIC_FETCH_AND_ADD, true, 8}),
    [](const ::testing::TestParamInfo<Stall>& stall) { return std::string(stall.param.name); });

// The copies of the program continue after its end.
TEST_F(StalledMemory, ProgramEndsDuringAStall) {
  for (const size_t offset : {size_t{0}, kWaitingAt}) {
    SCOPED_TRACE(offset);
    auto end = std::make_unique<End>(wire_, 11);
    WaitingMemory memory(end->b().memory() + kWaitingAt, kWaitingBytes);
    if (!memory.works()) GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
    end->Post(ROCI_ABI_WR_RDMA_WRITE, 0, 20000, kWaitingAt);
    end->Post(ROCI_ABI_WR_RDMA_READ, 0, 20000, offset);
    victim_.Read();
    end.reset();
    victim_.Read();
  }
}

// The program ends before the watch thread detects the stall.
TEST_F(StalledMemory, ProgramEndsBeforeTheStallIsDetected) {
  for (const auto& [opcode, offset] : {std::pair(ROCI_ABI_WR_RDMA_WRITE, size_t{0}),
                                       std::pair(ROCI_ABI_WR_RDMA_READ, kWaitingAt)}) {
    for (uint32_t nap_us = 0; nap_us < 400; nap_us += 10) {
      auto end = std::make_unique<End>(wire_, 11);
      WaitingMemory memory(end->b().memory() + kWaitingAt, kWaitingBytes);
      if (!memory.works()) GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
      end->Post(opcode, offset, 20000, kWaitingAt);
      usleep(nap_us);
      end.reset();
      victim_.Read(5);
    }
  }
}

// The programs of one user share a limited number of copier threads.
TEST_F(StalledMemory, StallsOfMoreProgramsThanCopierThreads) {
  std::vector<std::unique_ptr<End>> ends;
  std::vector<std::unique_ptr<WaitingMemory>> memories;
  for (uint32_t i = 0; i < 6; ++i) {
    ends.push_back(std::make_unique<End>(wire_, 20 + 2 * i));
    memories.push_back(
        std::make_unique<WaitingMemory>(ends.back()->b().memory() + kWaitingAt, kWaitingBytes));
    if (!memories.back()->works()) GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
    ends.back()->Post(ROCI_ABI_WR_RDMA_WRITE, 0, 100, kWaitingAt);
    victim_.Read(50);
  }
  // Messages for programs without a copier thread wait, too.
  for (auto& end : ends) {
    for (int i = 0; i < 3; ++i) end->Post(ROCI_ABI_WR_RDMA_WRITE, 0, 5000, kWaitingAt);
  }
  victim_.Read(50);
  for (auto& memory : memories) memory->Serve(std::byte{7});
  for (auto& end : ends) {
    for (int i = 0; i < 4; ++i) end->Await(5000);
  }
  victim_.Read();
}

// No thread can be started: its stack would be as large as the address space.
class LackOfThreads {
 public:
  LackOfThreads() {
    EXPECT_EQ(pthread_getattr_default_np(&before_), 0);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    EXPECT_EQ(pthread_attr_setstacksize(&attributes, size_t{1} << 47), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
  ~LackOfThreads() {
    EXPECT_EQ(pthread_setattr_default_np(&before_), 0);
    pthread_attr_destroy(&before_);
  }
  LackOfThreads(const LackOfThreads&) = delete;
  LackOfThreads& operator=(const LackOfThreads&) = delete;

 private:
  pthread_attr_t before_;
};

// A copy stalls while no thread can be started. The loop goes on once one can be started, and the
// next stall does not stop it.
TEST_F(StalledMemory, TheLoopIsWatchedAfterALackOfThreads) {
  constexpr int kLackUs = 50'000;  // more than a hundred periods of the watch thread
  End first(wire_, 11), second(wire_, 15);
  WaitingMemory first_memory(first.b().memory() + kWaitingAt, kWaitingBytes);
  WaitingMemory second_memory(second.b().memory() + kWaitingAt, kWaitingBytes);
  if (!first_memory.works() || !second_memory.works()) {
    GTEST_SKIP() << "no userfaultfd for faults of the kernel here";
  }
  {
    const LackOfThreads lack;
    EXPECT_THROW(std::thread([] {}).join(), std::system_error);
    first.Post(ROCI_ABI_WR_RDMA_WRITE, 0, 20000, kWaitingAt);
    usleep(kLackUs);
  }
  victim_.Read();
  second.Post(ROCI_ABI_WR_RDMA_WRITE, 0, 20000, kWaitingAt);
  victim_.Read();
  first_memory.Serve(std::byte{1});
  second_memory.Serve(std::byte{2});
  first.ExpectSuccess();
  second.ExpectSuccess();
}

// A copy that is preempted by other threads is not treated as stalled. (The kernel may put the
// lcore to sleep in a copy now and then, so one of several tries must pass.)
TEST_F(StalledMemory, PreemptionIsNotAStall) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's copies take long";
  constexpr int kTries = 4;
  int stalled = 0;
  while (stalled < kTries && !HasFailure() && StallsBesideOthers()) ++stalled;
  EXPECT_LT(stalled, kTries) << "another thread has become the lcore each time";
}

}  // namespace
}  // namespace roci::testing
