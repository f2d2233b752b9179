#include "tools/scenario/reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace roci::tools {
namespace {

using ::testing::HasSubstr;

Outcome Good(const char* name, uint32_t run = 1) {
  return {name, run, 0.5, {{true, "client exits with 0", "exit status 0"}}, ""};
}
Outcome Bad(const char* name, uint32_t run = 1) {
  Outcome out = Good(name, run);
  out.verdicts.push_back({false, "hits <#> \"3\"", "2\n& more"});
  return out;
}

TEST(Reports, PrintALineForEachExpectation) {
  EXPECT_EQ(TextOf(Bad("a"), 1),
            "ok      a: client exits with 0; found: exit status 0\n"
            "not ok  a: hits <#> \"3\"; found: 2 & more\n");
  EXPECT_EQ(TextOf(Good("a", 7), 9), "");
  EXPECT_THAT(TextOf(Bad("a", 7), 9), HasSubstr("not ok  a run 7: hits"));
}

TEST(Reports, TellFlakyScenarios) {
  const std::vector<Outcome> outcomes = {Good("a"), Good("b"), Bad("b", 2), Bad("c"), Bad("c", 2)};
  EXPECT_EQ(SummaryOf(outcomes, 2, 0, 1.25),
            "flaky: b, 1 of 2 runs\nfailed: c, 2 of 2 runs\n"
            "3 scenarios, 2 failed; 5 runs; 8 expectations, 3 failed; 1.2 s\n");
  EXPECT_THAT(SummaryOf({Good("a")}, 1, 3, 1), HasSubstr("interrupted: 3 runs did not end\n"));
}

TEST(Reports, EscapeInTap) {
  EXPECT_EQ(TapOf(Bad("a"), 1, 4),
            "ok 4 - a: client exits with 0\nnot ok 5 - a: hits <\\#> \"3\"\n# found: 2 & more\n");
  EXPECT_EQ(TapEnd(5, 0), "1..5\n");
  EXPECT_THAT(TapEnd(5, 1), HasSubstr("Bail out!"));
}

TEST(Reports, EscapeInJunit) {
  const std::string xml = JunitOf({Bad("a")}, 1);
  EXPECT_THAT(xml, HasSubstr("<testsuite name=\"a\" tests=\"2\" failures=\"1\""));
  EXPECT_THAT(
      xml, HasSubstr("name=\"hits &lt;#&gt; &quot;3&quot;\"><failure message=\"2 &amp; more\"/>"));
}

TEST(Reports, HaveEverythingInJson) {
  const nlohmann::json json = JsonOf({Good("a"), Bad("b")}, 0, 2);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["runs"][1]["expectations"][1]["found"], "2\n& more");
  EXPECT_EQ(JsonOf({Good("a")}, 0, 2)["ok"], true);
  EXPECT_EQ(JsonOf({Good("a")}, 1, 2)["ok"], false);
}

TEST(Outcome, SurvivesJson) {
  Outcome out;
  ASSERT_TRUE(FromJson(ToJson(Bad("b", 3)), out));
  EXPECT_EQ(out.scenario, "b");
  EXPECT_EQ(out.run, 3);
  ASSERT_EQ(out.verdicts.size(), 2);
  EXPECT_EQ(out.verdicts[1].found, "2\n& more");
  EXPECT_FALSE(out.Passed());
  EXPECT_FALSE(FromJson(nlohmann::json::object(), out));
  EXPECT_FALSE(FromJson(nlohmann::json(), out));
}

TEST(Outcome, WithoutVerdictsHasNotPassed) { EXPECT_FALSE(Outcome().Passed()); }

}  // namespace
}  // namespace roci::tools
