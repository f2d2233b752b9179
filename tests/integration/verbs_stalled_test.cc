// A program whose memory blocks every access, or that is stopped at any time, delays neither data
// nor requests of other programs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/integration/late_memory.h"
#include "tests/integration/stalling_programs.h"
#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
// Maximum delay of other programs' requests, on a machine that is busy with other tests.
constexpr std::chrono::milliseconds kSoon(2000);

// The stalling programs: each is run in a process of its own.
TEST(Culprit, DISABLED_RegisterAndWrite) { RegisterAndWrite(); }
TEST(Culprit, DISABLED_WriteToMissingPages) { WriteToMissingPages(); }
TEST(Culprit, DISABLED_WriteToSilentFuseFile) { WriteToSilentFuseFile(); }
TEST(Culprit, DISABLED_WriteToColdFile) { WriteToColdFile(); }
TEST(Culprit, DISABLED_WriteToSwappedPages) { WriteToSwappedPages(); }

// TEST `name` of Culprit.
std::vector<std::string> Culprit(const std::string& name) {
  return {"--gtest_also_run_disabled_tests", "--gtest_filter=Culprit.DISABLED_" + name};
}

// Work of other programs: READs with the correct bytes, and requests.
void WorkAsOthersDo(Pair& pair, int rounds) {
  Buffer here(pair.near_device, 64, 1);
  Buffer there(pair.far_device, 64, 2);
  for (int i = 0; i < rounds && !::testing::Test::HasFailure(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    there.data()[0] = static_cast<uint8_t>(i);
    ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_READ, here.Sge(0, 8), IBV_SEND_SIGNALED,
                                 there.address(), there.rkey()),
              0);
    pair.near.ExpectSuccess();
    EXPECT_EQ(here.data()[0], static_cast<uint8_t>(i));
    ibv_mr* mr = ibv_reg_mr(pair.near_device.pd, here.data(), 64, kAccess);
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kSoon);
  }
}

void ExpectNoDelayBy(const std::string& name) {
  Pair pair(PatientOptions());
  for (int i = 0; i < 3; ++i) {
    StallingProcess culprit(Culprit(name));
    const StallingProcess::State state = culprit.AwaitReport();
    if (state == StallingProcess::State::kRefused) GTEST_SKIP() << culprit.refusal();
    ASSERT_EQ(state, StallingProcess::State::kAtWork);
    WorkAsOthersDo(pair, 100);
  }
  // The programs have ended.
  WorkAsOthersDo(pair, 100);
}

TEST(VerbsStalled, ByPagesThatNeverArrive) { ExpectNoDelayBy("WriteToMissingPages"); }

TEST(VerbsStalled, ByAFileWhoseServerIsSilent) { ExpectNoDelayBy("WriteToSilentFuseFile"); }

// At night, since they use the disk. (How long the READs take depends on when the watch thread gets
// a processor, so only tools/bench, which runs alone, measures percentiles.)
TEST(VerbsStalledByDisk, ThatReadsAFile) { ExpectNoDelayBy("WriteToColdFile"); }

TEST(VerbsStalledByDisk, ThatSwapsIn) { ExpectNoDelayBy("WriteToSwappedPages"); }

TEST(VerbsStalled, ByAProgramThatIsStopped) {
  Pair pair(PatientOptions());
  StallingProcess culprit(Culprit("RegisterAndWrite"));
  ASSERT_EQ(culprit.AwaitReport(), StallingProcess::State::kAtWork);
  std::mt19937 random(1);
  for (int i = 0; i < 1000 && !::testing::Test::HasFailure(); ++i) {
    usleep(static_cast<useconds_t>(random() % 2000));
    culprit.Stop();
    WorkAsOthersDo(pair, 3);
    culprit.Continue();
  }
}

// Tries requests at any moment of a copy. An adapter does not access the memory after the call has
// returned.
TEST(VerbsStalled, NoAccessAfterDeregistration) {
  LateMemory memory;
  if (!memory.works()) GTEST_SKIP() << "no userfaultfd for kernel faults";
  std::mt19937 random(1);
  for (int i = 0; i < 200 && !::testing::Test::HasFailure(); ++i) {
    Pair pair(PatientOptions());
    Buffer here(pair.near_device, 64, 1);
    ibv_mr* mr = ibv_reg_mr(pair.far_device.pd, memory.data(), memory.size(), kAccess);
    ASSERT_NE(mr, nullptr) << strerror(errno);
    ASSERT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 64), IBV_SEND_SIGNALED,
                                 memory.late_address(), mr->rkey),
              0);
    SpinFor(std::chrono::microseconds(random() % 400));
    ASSERT_EQ(ibv_dereg_mr(mr), 0);
    memory.ExpectNoAccess();
    memory.Empty();
  }
}

}  // namespace
}  // namespace roci::testing
