#include "tools/doctor/confinement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "verbs_provider/abi/stand_in.h"

namespace roci::tools {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(MountNamespace, NamesTheSettingThatForbidsIt) {
  EXPECT_EQ(JudgeMountNamespace({}).verdict, Verdict::kOk);
  const Finding finding =
      JudgeMountNamespace({"user namespaces are refused", {"user.max_user_namespaces = 0"}});
  EXPECT_EQ(finding.verdict, Verdict::kSlow);
  EXPECT_THAT(finding.found, HasSubstr("user.max_user_namespaces = 0"));
  EXPECT_THAT(finding.remedy, HasSubstr("sysctl"));
  EXPECT_THAT(finding.cost, HasSubstr("LD_PRELOAD"));
  EXPECT_THAT(JudgeMountNamespace({"refused", {}}).remedy, HasSubstr("SYS_ADMIN"));
}

TEST(PidNamespace, IsReadFromTheNumbersOfTheDaemon) {
  EXPECT_EQ(VisibilityByNumbers("Pid:\t5\nNSpid:\t5\nNSpgid:\t5\n"), Visibility::kVisible);
  EXPECT_EQ(VisibilityByNumbers("Pid:\t5\nNSpid:\t5\t1\nNSpgid:\t5\t1\n"), Visibility::kHidden);
  EXPECT_EQ(VisibilityByNumbers(""), Visibility::kUnknown);
}

TEST(PidNamespace, HiddenProgramsPay) {
  EXPECT_EQ(JudgePidNamespace({Visibility::kHidden, true}).verdict, Verdict::kSlow);
  for (const Visibility each :
       {Visibility::kNoDaemon, Visibility::kUnknown, Visibility::kVisible}) {
    EXPECT_EQ(JudgePidNamespace({each, true}).verdict, Verdict::kOk);
  }
}

TEST(Seccomp, NamesRefusedCallsAndTheirCosts) {
  EXPECT_EQ(JudgeSeccomp({false, {}}).verdict, Verdict::kOk);
  EXPECT_EQ(JudgeSeccomp({true, {}}).verdict, Verdict::kOk);
  const Finding finding = JudgeSeccomp({true, {"process_vm_readv", "unshare"}});
  EXPECT_EQ(finding.verdict, Verdict::kSlow);
  EXPECT_THAT(finding.found, HasSubstr("process_vm_readv, unshare"));
  EXPECT_THAT(finding.cost, HasSubstr("private memory"));
  EXPECT_THAT(finding.cost, HasSubstr("mount namespace"));
  for (const char* call : {"memfd_create", "pidfd_open", "process_vm_readv", "process_vm_writev",
                           "kcmp", "unshare", "open_tree", "seccomp", "sched_setattr"}) {
    EXPECT_NE(JudgeSeccomp({true, {call}}).cost, "") << call;
  }
}

TEST(KernelRdma, HidesOursOnlyWhereItCannotBeHidden) {
  EXPECT_EQ(JudgeKernelRdma({}).verdict, Verdict::kOk);
  EXPECT_EQ(JudgeKernelRdma({true, "", {"rxe0"}, {"roci0"}}).verdict, Verdict::kOk);
  const Finding finding = JudgeKernelRdma({true, "mounting is refused", {"rxe0"}, {"roci0"}});
  EXPECT_EQ(finding.verdict, Verdict::kSlow);
  EXPECT_THAT(finding.found, HasSubstr("rxe0"));
  EXPECT_THAT(finding.found, HasSubstr("mounting is refused"));
}

TEST(KernelRdma, MayHaveDevicesOfTheSameName) {
  const Finding finding = JudgeKernelRdma({false, "", {"mlx5_0", "roci0"}, {"roci0", "roci1"}});
  EXPECT_EQ(finding.verdict, Verdict::kMissing);
  EXPECT_THAT(finding.found, HasSubstr("roci0"));
  EXPECT_THAT(finding.found, testing::Not(HasSubstr("roci1")));
}

TEST(KernelRdma, TellsDevicesOfTheKernelFromOurs) {
  char name[] = "/tmp/roci_doctor_test.XXXXXX";
  const std::string top = mkdtemp(name);
  for (const char* device : {"/sys/class/infiniband/mlx5_0", "/sys/class/infiniband/roci0",
                             "/tree/class/infiniband/roci0"}) {
    std::filesystem::create_directories(top + device);
  }
  for (const char* ours : {"/sys/class/infiniband/roci0/", "/tree/class/infiniband/roci0/"}) {
    std::ofstream(top + ours + abi::kSocketAttribute) << "/run/roci/rocid.sock\n";
  }
  const Roots roots = {"/proc", top + "/sys", "/dev"};
  const KernelRdmaFacts facts = TryKernelRdma(top + "/tree", roots);
  EXPECT_THAT(facts.devices, ElementsAre("mlx5_0")) << "within `roci run` ours are there, too";
  EXPECT_THAT(facts.ours, ElementsAre("roci0"));
  std::filesystem::remove_all(top);
}

}  // namespace
}  // namespace roci::tools
