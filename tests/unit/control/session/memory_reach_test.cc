// How the log and `roci show` describe the way to registered memory.
#include "control/session/memory_reach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace roci::control {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr ReachFacts kOwn{.is_own_user = true, .is_visible = true};
constexpr ReachFacts kOther{.is_own_user = false, .is_visible = true};
constexpr ReachFacts kConfined{.is_own_user = true, .is_visible = true, .is_confined = true};
constexpr ReachFacts kBeside{.is_own_user = true, .is_visible = false};

TEST(MemoryReachTest, TheWayDependsOnTheProgram) {
  EXPECT_STREQ(WayOf(NotMapped::kPrivate, kOwn), "process_vm");
  EXPECT_STREQ(WayOf(NotMapped::kPrivate, kOther), "proc_mem");
  EXPECT_STREQ(WayOf(NotMapped::kPrivate, kBeside), "proc_mem");
  EXPECT_STREQ(WayOf(NotMapped::kPrivate, kConfined), "proc_mem");
  EXPECT_STREQ(WayOf(NotMapped::kMapped, kOther), "mapped");
  EXPECT_STREQ(WayOf(NotMapped::kOnDisk, kOther), "disk");
  EXPECT_STREQ(WayOf(NotMapped::kHasBlocked, kOther), "calls");
  EXPECT_THAT(DescribeWay(NotMapped::kPrivate, kOwn), HasSubstr("process_vm_readv"));
  EXPECT_THAT(DescribeWay(NotMapped::kPrivate, kOther), HasSubstr("/proc/PID/mem"));
}

TEST(MemoryReachTest, PrivateMemory) {
  for (const ReachFacts& facts : {kOwn, kOther, kBeside}) {
    EXPECT_THAT(FasterWith(NotMapped::kPrivate, facts), HasSubstr("shared memory"));
  }
  ReachFacts facts = kOwn;
  EXPECT_THAT(FasterWith(NotMapped::kPrivate, facts),
              HasSubstr("memory.policy = \"map\" and a /dev"));
  facts.has_userfaultfd = true;
  EXPECT_THAT(FasterWith(NotMapped::kPrivate, facts), HasSubstr("memory.policy = \"map\""));
  EXPECT_THAT(FasterWith(NotMapped::kPrivate, facts), Not(HasSubstr("/dev/userfaultfd")));
  facts.converts = true;
  EXPECT_THAT(FasterWith(NotMapped::kPrivate, facts), Not(HasSubstr(", or")))
      << "memory that cannot be converted";
  facts.has_userfaultfd = false;
  EXPECT_THAT(FasterWith(NotMapped::kPrivate, facts), HasSubstr("/dev/userfaultfd"));
  EXPECT_THAT(FasterWith(NotMapped::kPrivate, kOther), HasSubstr("as the program's user"));
  EXPECT_THAT(FasterWith(NotMapped::kPrivate, kBeside), HasSubstr("PID namespace"));
  EXPECT_THAT(FasterWith(NotMapped::kPrivate, kConfined), HasSubstr("process_vm_readv"));
}

TEST(MemoryReachTest, EveryReasonHasWords) {
  for (auto why = NotMapped::kOnDisk; why <= NotMapped::kPolicy;
       why = static_cast<NotMapped>(static_cast<int>(why) + 1)) {
    EXPECT_STRNE(ReasonOf(why), "") << static_cast<int>(why);
    EXPECT_NE(FasterWith(why, kOwn), "") << static_cast<int>(why);
  }
  EXPECT_STREQ(ReasonOf(NotMapped::kMapped), "");
  EXPECT_EQ(FasterWith(NotMapped::kMapped, kOwn), "");
}

}  // namespace
}  // namespace roci::control
