// Sessions whose answer is held because a copy still accesses the program's memory: how long it is
// held, and programs that close their socket in between.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>

#include "tests/integration/hostile/rig.h"
#include "tests/integration/late_memory.h"
#include "tests/integration/show_device.h"

namespace roci::testing {
namespace {

using hostile::Region;
using hostile::RigPair;

uint32_t RegionsInUse() { return ShowDevice("roci1")["mrs"]["used"].get<uint32_t>(); }

bool IsAnswered(const RawSession& session, int timeout_ms) {
  pollfd readable{session.fd(), POLLIN, 0};
  return poll(&readable, 1, timeout_ms) == 1;
}

// A program that deregisters memory whose pages arrive late while a WRITE accesses it.
class HeldAnswer : public ::testing::Test {
 protected:
  // Deregisters `delay` after the WRITE was posted. True: the answer is held, since it has not
  // arrived although the region is gone. The answer is not held if the request came before the copy
  // started or after the copy was known to wait.
  static bool AsksInTime(RigPair& pair, LateMemory& memory, std::chrono::microseconds delay) {
    Region late;
    EXPECT_EQ(pair.far.Register(static_cast<std::byte*>(memory.data()), memory.size(), late), 0);
    const uint32_t before = RegionsInUse();
    roci_abi_send_wqe write = pair.ValidWqe(ROCI_ABI_WR_RDMA_WRITE);
    write.rkey = late.key;
    write.remote_va = memory.late_address();
    pair.near.Post(pair.near_qp, write, {pair.near.region.Sge(64)});
    SpinFor(delay);
    roci_abi_handle_request request{};
    request.handle = late.handle;
    pair.far.CloseFds();
    EXPECT_TRUE(pair.far.Send(ROCI_ABI_DEREG_MR, request));
    return !IsAnswered(pair.far, 5) && RegionsInUse() < before;
  }
  // Calls use(session) for `wanted` sessions whose answer is held.
  template <class Use>
  void ForHeld(int wanted, std::chrono::milliseconds page_comes_after, Use&& use) {
    LateMemory memory(page_comes_after);
    if (!memory.works()) GTEST_SKIP() << "no userfaultfd for kernel faults";
    std::mt19937 random(1);
    int held = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end && held < wanted && !HasFailure()) {
      RigPair pair;
      if (AsksInTime(pair, memory, std::chrono::microseconds(random() % 300))) {
        ++held;
        use(pair.far);
      }
      pair.far.Close();
      memory.Empty();
    }
    for (int i = 0; i < 3000 && ShowDevice("roci1")["sessions"] != 0; ++i) usleep(20'000);
    EXPECT_EQ(RegionsInUse(), 0u);
    if (held < wanted) GTEST_SKIP() << "no request came during the first part of a copy";
  }
};

TEST_F(HeldAnswer, TheProgramMayCloseItsSocket) {
  ForHeld(3, std::chrono::milliseconds(200), [](RawSession& session) { session.Close(); });
}

TEST_F(HeldAnswer, IsSentWhenThePageArrives) {
  ForHeld(3, std::chrono::milliseconds(200), [](RawSession& session) {
    roci_abi_plain_response response;
    EXPECT_EQ(session.Receive(response), 0);
  });
}

TEST_F(HeldAnswer, IsSentAfterASecondWithoutThePage) {
  constexpr std::chrono::milliseconds kPageComesAfter(2500);
  ForHeld(1, kPageComesAfter, [&](RawSession& session) {
    const auto begin = std::chrono::steady_clock::now();
    roci_abi_plain_response response;
    EXPECT_EQ(session.Receive(response), 0);
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GT(took, std::chrono::milliseconds(800));
    EXPECT_LT(took, std::chrono::milliseconds(2200));
  });
}

}  // namespace
}  // namespace roci::testing
