// Makes each allocation of each session command fail once (failing_allocations.cc). The daemon must
// refuse or complete the command, keep serving the session, and leak nothing.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "tests/integration/failing_allocations.h"
#include "tests/integration/hostile/cm_speaker.h"
#include "tests/integration/hostile/daemon_resources.h"
#include "tests/integration/hostile/messages.h"

namespace roci::testing::hostile {
namespace {

constexpr uint32_t kMostAllocations = 300;  // per command

FailingAllocations* OpenShared() {
  const char* name = std::getenv("ROCI_TEST_ALLOCATIONS");
  const int fd = name != nullptr ? open(name, O_RDWR | O_CLOEXEC) : -1;
  if (fd < 0) return nullptr;
  void* page = mmap(nullptr, sizeof(FailingAllocations), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return page == MAP_FAILED ? nullptr : static_cast<FailingAllocations*>(page);
}

// The error of the answer; -1: the daemon closed the connection. (A refused connection gets the
// head only.)
int AnswerToHello(RawSession& session) {
  roci_abi_hello_request request{};
  request.magic = ROCI_ABI_MAGIC;
  request.major = ROCI_ABI_MAJOR;
  std::snprintf(request.device, sizeof(request.device), "roci0");
  if (!session.Send(ROCI_ABI_HELLO, request)) return -1;
  std::array<std::byte, 4096> answer;
  roci_abi_response head{};
  const ssize_t size = session.ReceiveBytes(answer);
  if (size < static_cast<ssize_t>(sizeof(head))) return -1;
  std::memcpy(&head, answer.data(), sizeof(head));
  return head.error;
}

roci_abi_reg_mr_request RegionRequest(uint32_t pd, std::span<std::byte> memory) {
  roci_abi_reg_mr_request request{};
  request.pd = pd;
  request.access = kAllAccess;
  request.start = request.iova = reinterpret_cast<uint64_t>(memory.data());
  request.length = memory.size();
  request.extent_count = 1;
  request.extents[0].va = request.start;
  request.extents[0].length = request.length;
  return request;
}

class AllocationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(shared_, nullptr) << "with_daemon.sh creates the file";
    {
      const Speaker warm;
      const CmSpeaker warm_too;
    }
    AwaitIdle();
    before_ = ReadDaemonResources();
  }
  void TearDown() override {
    shared_->countdown = 0;
    AwaitIdle();
    std::string excess = Excess(before_, ReadDaemonResources());
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!excess.empty() && std::chrono::steady_clock::now() < end) {
      usleep(20'000);
      excess = Excess(before_, ReadDaemonResources());
    }
    EXPECT_EQ(excess, "");
  }

  // Makes allocation `number`, counted from now, fail.
  void Fail(uint32_t number) {
    shared_->failed = 0;
    shared_->countdown = number;
  }
  // Whether an allocation has failed since.
  bool HasFailed() {
    shared_->countdown = 0;
    return shared_->failed != 0;
  }

  static void AwaitIdle() {
    ASSERT_TRUE(DaemonIsAlive());
    usleep(50'000);
  }

 private:
  FailingAllocations* const shared_ = OpenShared();
  DaemonResources before_;
};

TEST_F(AllocationTest, OfACommand) {
  const MessageKind& question = MessageKinds()[0];
  uint32_t refused = 0;
  for (const MessageKind& kind : MessageKinds()) {
    SCOPED_TRACE(kind.name);
    auto speaker = std::make_unique<Speaker>();
    for (uint32_t number = 1; number <= kMostAllocations; ++number) {
      SCOPED_TRACE(number);
      const std::vector<std::byte> message = speaker->Valid(kind);
      Fail(number);
      const int answer = speaker->Ask(message);
      const bool has_failed = HasFailed();
      ASSERT_TRUE(DaemonIsAlive());
      ASSERT_NE(answer, -1) << "no answer";
      if (!has_failed) break;
      refused += answer == ENOMEM ? 1 : 0;
      if (answer == -2) speaker = std::make_unique<Speaker>();
      ASSERT_EQ(speaker->Ask(speaker->Valid(question)), 0);
      ASSERT_LT(number, kMostAllocations);
    }
  }
  EXPECT_GT(refused, 50u);
}

// Nothing that is registered may be left without a handle. A session logs once how its memory is
// accessed, so each attempt has a session of its own.
TEST_F(AllocationTest, OfARegistrationLeavesNoRegion) {
  alignas(kPage) static std::array<std::byte, kPage> memory;
  for (uint32_t number = 1; number <= kMostAllocations; ++number) {
    SCOPED_TRACE(number);
    RawSession session;
    ASSERT_EQ(session.Hello(), 0);
    const uint32_t pd = session.AllocPd();
    ASSERT_NE(pd, 0u);
    Fail(number);
    roci_abi_reg_mr_response region;
    const int error = session.Call(ROCI_ABI_REG_MR, RegionRequest(pd, memory), region);
    const bool has_failed = HasFailed();
    ASSERT_TRUE(DaemonIsAlive());
    if (error != -EPIPE) {
      if (error == 0) {
        EXPECT_EQ(session.OnHandle(ROCI_ABI_DEREG_MR, region.handle), 0);
      }
      EXPECT_EQ(session.OnHandle(ROCI_ABI_DEALLOC_PD, pd), 0) << "REG_MR answered " << error;
    }
    if (!has_failed) break;
    ASSERT_LT(number, kMostAllocations);
    session.Close();
    AwaitIdle();
  }
}

// Requests an address handle for a peer that does not exist: the answer comes after resolution has
// timed out.
void AskForMissingPeer(RawSession& session) {
  ASSERT_EQ(session.Hello(), 0);
  roci_abi_create_ah_request request{};
  request.pd = session.AllocPd();
  request.attr.is_global = 1;
  request.attr.port = 1;
  request.attr.sgid_index = 1;
  const uint8_t gid[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 99, 0, 77};
  std::memcpy(request.attr.dgid, gid, sizeof(gid));
  session.CloseFds();
  ASSERT_TRUE(session.Send(ROCI_ABI_CREATE_AH, request));
}

// A deferred answer is sent, or the session ends.
TEST_F(AllocationTest, OfADeferredAnswer) {
  constexpr uint32_t kMostOfAnAnswer = 14;
  constexpr std::chrono::milliseconds kBefore(100);
  roci_abi_handle_response response{};
  const auto begin = std::chrono::steady_clock::now();
  {
    RawSession session;
    AskForMissingPeer(session);
    ASSERT_EQ(session.Receive(response), ETIMEDOUT);
  }
  const auto resolution = std::chrono::steady_clock::now() - begin;
  for (uint32_t number = 1; number <= kMostOfAnAnswer; ++number) {
    SCOPED_TRACE(number);
    RawSession session;
    AskForMissingPeer(session);
    std::this_thread::sleep_for(resolution - kBefore);
    Fail(number);
    const int answer = session.Receive(response);
    const bool has_failed = HasFailed();
    ASSERT_TRUE(DaemonIsAlive());
    ASSERT_NE(answer, -ETIME) << "no answer";
    if (!has_failed) break;
    ASSERT_LT(number, kMostOfAnAnswer);
  }
}

TEST_F(AllocationTest, OfAProgramThatOpensADevice) {
  for (uint32_t number = 1; number <= kMostAllocations; ++number) {
    SCOPED_TRACE(number);
    RawSession session;
    Fail(number);
    const int error = AnswerToHello(session);
    const bool has_failed = HasFailed();
    ASSERT_TRUE(DaemonIsAlive());
    if (!has_failed) {
      EXPECT_EQ(error, 0);
      break;
    }
    ASSERT_LT(number, kMostAllocations);
  }
}

TEST_F(AllocationTest, OfAConnectionManager) {
  for (uint32_t number = 1; number <= kMostAllocations; ++number) {
    SCOPED_TRACE(number);
    Fail(number);
    { const CmSpeaker speaker; }
    usleep(2000);
    const bool has_failed = HasFailed();
    ASSERT_TRUE(DaemonIsAlive());
    if (!has_failed) break;
    ASSERT_LT(number, kMostAllocations);
  }
  const Speaker goes_on;
}

}  // namespace
}  // namespace roci::testing::hostile
