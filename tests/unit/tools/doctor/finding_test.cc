#include "tools/doctor/finding.h"

#include <gtest/gtest.h>

namespace roci::tools {
namespace {

TEST(Findings, TakeALineEach) {
  const std::string text = FormatFindings(
      {Ok("kernel", "Linux"), Slow("hugepages", "none\nat all", "TLB misses", "get some"),
       Missing("shm", "no", "MPI fails", "mount it")});
  EXPECT_EQ(text,
            "ok       kernel           Linux\n"
            "slow     hugepages        none at all. Cost: TLB misses. To do: get some\n"
            "missing  shm              no. Cost: MPI fails. To do: mount it\n"
            "1 ok, 1 slow, 1 missing\n");
}

TEST(Findings, SayWhenNothingWorks) {
  const std::vector<Finding> missing = {Missing("shm", "no", "MPI fails", "mount it")};
  EXPECT_FALSE(NothingWorks(missing));
  EXPECT_EQ(DescribeFindings(missing)["works"], true);
  const std::vector<Finding> fatal = {Ok("kernel", "Linux"), Fatal("plugin", "no", "all", "build")};
  EXPECT_TRUE(NothingWorks(fatal));
  EXPECT_EQ(DescribeFindings(fatal)["works"], false);
  EXPECT_NE(FormatFindings(fatal).find("no program can use a device here"), std::string::npos);
}

TEST(Findings, HaveTheSameMembersInJson) {
  const nlohmann::json findings = DescribeFindings({Slow("a", "b", "c", "d")})["findings"];
  EXPECT_EQ(
      findings,
      nlohmann::json::array(
          {{{"name", "a"}, {"verdict", "slow"}, {"found", "b"}, {"cost", "c"}, {"remedy", "d"}}}));
}

}  // namespace
}  // namespace roci::tools
