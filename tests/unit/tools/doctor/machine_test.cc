// Findings about the machine: judged from facts, and tried in a tree that stands for /proc, /sys
// and /dev. doctor_test.py has the same with real namespaces, filters and limits.
#include "tools/doctor/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "dataplane/base/thread_priority.h"

namespace roci::tools {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

class TreeTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/roci_doctor_test.XXXXXX";
    top_ = mkdtemp(name);
    roots_ = {top_ + "/proc", top_ + "/sys", top_ + "/dev"};
  }
  void TearDown() override { std::filesystem::remove_all(top_); }

  void Put(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(top_ + path).parent_path());
    std::ofstream(top_ + path) << content;
  }

  std::string top_;
  Roots roots_;
};

TEST(Kernel, MustShareMemoryWithPrograms) {
  EXPECT_EQ(JudgeKernel(TryKernel()).verdict, Verdict::kOk);
  const Finding finding = JudgeKernel({.name = "Linux 6.1", .memfd_error = ENOSYS});
  EXPECT_EQ(finding.verdict, Verdict::kMissing);
  EXPECT_TRUE(finding.nothing_works);
}

TEST(MemoryAccess, IsTried) { EXPECT_EQ(TryMemoryAccess().proc_mem_error, 0); }

TEST(MemoryAccess, IsSlowWithoutProcessVm) {
  EXPECT_EQ(JudgeMemoryAccess({}).verdict, Verdict::kOk);
  EXPECT_EQ(JudgeMemoryAccess({EPERM, 0, {}}).verdict, Verdict::kSlow);
  EXPECT_EQ(JudgeMemoryAccess({EPERM, 0, 0}).verdict, Verdict::kOk) << "rocid may";
  EXPECT_EQ(JudgeMemoryAccess({0, 0, EPERM}).verdict, Verdict::kSlow) << "rocid may not";
  EXPECT_TRUE(JudgeMemoryAccess({0, EACCES, 0}).nothing_works);
}

TEST_F(TreeTest, UserfaultfdNeedsTheCallOrTheDevice) {
  EXPECT_EQ(TryUserfaultfd(roots_).device_error, ENOENT);
  EXPECT_EQ(JudgeUserfaultfd({0, ENOENT, {}}).verdict, Verdict::kOk);
  EXPECT_EQ(JudgeUserfaultfd({EPERM, 0, {}}).verdict, Verdict::kOk);
  EXPECT_EQ(JudgeUserfaultfd({EPERM, EACCES, 0}).verdict, Verdict::kOk) << "rocid hands it out";
  const Finding finding = JudgeUserfaultfd({EPERM, EACCES, ENOENT});
  EXPECT_EQ(finding.verdict, Verdict::kSlow);
  EXPECT_THAT(finding.found, HasSubstr("by rocid: No such file"));
  EXPECT_THAT(finding.cost, HasSubstr("memory.policy"));
}

TEST_F(TreeTest, HugepagesAreCounted) {
  EXPECT_EQ(JudgeHugepages(TryHugepages(roots_)).verdict, Verdict::kSlow) << "none at all";
  Put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n");
  // The kernel has no such size, so taking a page fails.
  Put("/sys/kernel/mm/hugepages/hugepages-8kB/free_hugepages", "1000000\n");
  const HugepageFacts facts = TryHugepages(roots_);
  ASSERT_EQ(facts.sizes.size(), 2u);
  const Finding finding = JudgeHugepages(facts);
  EXPECT_EQ(finding.verdict, Verdict::kSlow);
  EXPECT_THAT(finding.found, HasSubstr("0 MiB free; pages of 8 KiB: "));
}

TEST(Hugepages, CountWhetherTheDaemonUsesThem) {
  const std::vector<HugepageSize> enough = {{.kib = 2048, .free = 128}};
  EXPECT_EQ(JudgeHugepages({enough, {}}).verdict, Verdict::kOk);
  EXPECT_EQ(JudgeHugepages({enough, true}).verdict, Verdict::kOk);
  EXPECT_THAT(JudgeHugepages({enough, false}).remedy, HasSubstr("restart rocid"));
  EXPECT_EQ(JudgeHugepages({{{.kib = 2048, .free = 127}}, {}}).verdict, Verdict::kSlow);
  EXPECT_EQ(JudgeHugepages({{}, true}).verdict, Verdict::kOk) << "all are taken, by rocid";
}

TEST_F(TreeTest, ShmMustExist) {
  EXPECT_EQ(TryShm(roots_).error, ENOENT);
  std::filesystem::create_directories(roots_.dev + "/shm");
  EXPECT_EQ(TryShm(roots_).error, 0);
  EXPECT_TRUE(std::filesystem::is_empty(roots_.dev + "/shm")) << "it leaves nothing behind";
}

TEST(Shm, MustHaveRoom) {
  EXPECT_EQ(JudgeShm({ENOENT, 0}).verdict, Verdict::kMissing);
  EXPECT_EQ(JudgeShm({0, 64 * kMiB}).verdict, Verdict::kSlow);
  EXPECT_EQ(JudgeShm({0, 128 * kMiB}).verdict, Verdict::kOk);
}

TEST_F(TreeTest, MemlockIsThatOfTheProcess) {
  constexpr char kHead[] = "Limit                     Soft Limit           Hard Limit  Units\n";
  Put("/proc/12/limits", std::string(kHead) + "Max locked memory         65536  65536  bytes\n");
  Put("/proc/self/limits",
      std::string(kHead) + "Max locked memory         unlimited  unlimited  bytes\n");
  EXPECT_EQ(ReadMemlock(12, roots_).bytes, 65536u);
  EXPECT_EQ(JudgeMemlock(ReadMemlock(12, roots_)).verdict, Verdict::kSlow);
  EXPECT_EQ(JudgeMemlock(ReadMemlock(0, roots_)).verdict, Verdict::kOk);
  EXPECT_EQ(JudgeMemlock({.bytes = 1, .may_exceed = true}).verdict, Verdict::kOk);
}

TEST_F(TreeTest, CgroupMemoryIsTheGroupWithTheLeastRoom) {
  Put("/proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(ReadCgroupMemory(0, roots_).limit_bytes, UINT64_MAX);
  Put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(JudgeCgroupMemory(ReadCgroupMemory(0, roots_)).verdict, Verdict::kOk);
  Put("/sys/fs/cgroup/a/memory.max", std::to_string(512 * kMiB));
  Put("/sys/fs/cgroup/a/memory.current", std::to_string(412 * kMiB));
  const CgroupMemoryFacts facts = ReadCgroupMemory(0, roots_);
  EXPECT_EQ(facts.limit_bytes, 512 * kMiB);
  EXPECT_EQ(facts.used_bytes, 412 * kMiB);
  const Finding finding = JudgeCgroupMemory(facts);
  EXPECT_EQ(finding.verdict, Verdict::kSlow);
  EXPECT_THAT(finding.found, HasSubstr("100 MiB of 512 MiB left"));
}

TEST_F(TreeTest, CgroupMemoryOfVersion1) {
  Put("/proc/7/cgroup", "5:devices:/\n4:memory:/job\n0::/\n");
  Put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(JudgeCgroupMemory(ReadCgroupMemory(7, roots_)).verdict, Verdict::kOk);
  Put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(64 * kMiB));
  EXPECT_EQ(JudgeCgroupMemory(ReadCgroupMemory(7, roots_)).verdict, Verdict::kSlow);
}

TEST(Realtime, IsThatOfTheDaemonIfItRuns) {
  EXPECT_EQ(JudgeRealtime({dataplane::kGuardPriority, {}, false}).verdict, Verdict::kOk);
  EXPECT_EQ(JudgeRealtime({1, {}, false}).verdict, Verdict::kSlow);
  EXPECT_EQ(JudgeRealtime({0, 2, false}).verdict, Verdict::kOk);
  EXPECT_THAT(JudgeRealtime({3, 0, false}).remedy, HasSubstr("CAP_SYS_NICE"));
  EXPECT_THAT(JudgeRealtime({3, 0, true}).remedy, HasSubstr("realtime = \"auto\""));
}

}  // namespace
}  // namespace roci::tools
