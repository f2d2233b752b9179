#include "tools/doctor/child.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace roci::tools {
namespace {

TEST(Child, ReturnsStatusAndOutput) {
  const ChildEnd end = RunInChild([] {
    const bool done = write(STDOUT_FILENO, "out", 3) == 3 && write(STDERR_FILENO, "said", 4) == 4;
    return done ? 7 : 0;
  });
  EXPECT_EQ(end.status, 7);
  EXPECT_EQ(end.out, "out");
  EXPECT_EQ(end.said, "said");
}

TEST(Child, ReportsTheSignalThatEndedIt) {
  const ChildEnd end = RunInChild([] { return raise(SIGKILL); });
  EXPECT_EQ(end.status, -1);
  EXPECT_EQ(end.signal, SIGKILL);
}

TEST(Child, IsEndedAtTheTimeLimitWithItsDescendants) {
  const ChildEnd end = RunCommand({"sh", "-c", "sleep 1000 & wait"}, {}, 1);
  EXPECT_EQ(end.signal, SIGKILL);
}

TEST(Child, IsEndedAtTheTimeLimitAlsoIfItClosesItsOutput) {
  const ChildEnd end = RunCommand({"sh", "-c", "exec >&- 2>&-; sleep 1000"}, {}, 1);
  EXPECT_EQ(end.signal, SIGKILL);
}

TEST(Child, GetsTheEnvironmentInAddition) {
  EXPECT_EQ(RunCommand({"sh", "-c", "printf %s:%s \"$ROCI_A\" \"$PATH\""}, {"ROCI_A=b"}).out,
            std::string("b:") + getenv("PATH"));
}

TEST(Child, CannotFloodItsParent) {
  const ChildEnd end = RunCommand({"sh", "-c", "head -c 3000000 /dev/zero"});
  EXPECT_EQ(end.status, 0);
  EXPECT_EQ(end.out.size(), size_t{1} << 20);
}

TEST(Child, MayNotExist) { EXPECT_EQ(RunCommand({"/nowhere/program"}).status, 127); }

}  // namespace
}  // namespace roci::tools
