// Comparisons, patterns, words, queries, outputs and ends of programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tools/scenario/comparison.h"
#include "tools/scenario/output_tail.h"
#include "tools/scenario/pattern.h"
#include "tools/scenario/query.h"
#include "tools/scenario/scenario.h"
#include "tools/scenario/tcp_ports.h"
#include "tools/scenario/words.h"

namespace roci::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

bool Holds(const std::string& comparison, const Json& value) {
  const auto parsed = Comparison::Parse(comparison);
  EXPECT_TRUE(parsed.has_value()) << comparison;
  return parsed.has_value() && parsed->Holds(value);
}

TEST(Comparison, ComparesNumbers) {
  struct Case {
    const char* text;
    bool below, equal, above;
  };
  constexpr Case kCases[] = {{"5", false, true, false},     {"== 5", false, true, false},
                             {"!=5", true, false, true},    {"< 5", true, false, false},
                             {"<= 5", true, true, false},   {"> 5", false, false, true},
                             {" >=  5 ", false, true, true}};
  for (const Case& each : kCases) {
    EXPECT_EQ(Holds(each.text, 4), each.below) << each.text;
    EXPECT_EQ(Holds(each.text, 5u), each.equal) << each.text;
    EXPECT_EQ(Holds(each.text, 5.5), each.above) << each.text;
  }
}

TEST(Comparison, ComparesTexts) {
  EXPECT_TRUE(Holds("active", "active"));
  EXPECT_FALSE(Holds("== active", "down"));
  EXPECT_TRUE(Holds("!= active", "down"));
}

TEST(Comparison, ComparesTruthValues) {
  EXPECT_TRUE(Holds("true", true));
  EXPECT_FALSE(Holds("true", false));
  EXPECT_TRUE(Holds("!= true", false));
  EXPECT_FALSE(Comparison::Parse("> true").has_value());
}

TEST(Comparison, DoesNotHoldForAnotherKindOfValue) {
  EXPECT_FALSE(Holds("true", "true"));
  EXPECT_FALSE(Holds("true", 1));
  EXPECT_FALSE(Holds("!= 5", "active"));
  EXPECT_FALSE(Holds("!= active", 5));
  EXPECT_FALSE(Holds("!= 5", Json()));
  EXPECT_FALSE(Holds("< 5", Json()));
}

TEST(Comparison, RefusesWhatIsNone) {
  for (const char* text : {"", ">=", ">= many", "< "}) {
    EXPECT_FALSE(Comparison::Parse(text).has_value()) << text;
  }
}

TEST(Comparison, ReadsTimes) {
  const auto bound = Comparison::ParseTime("<= 300ms");
  ASSERT_TRUE(bound.has_value());
  EXPECT_EQ(bound->text(), "<= 300ms");
  EXPECT_TRUE(bound->Holds(300'000'000));
  EXPECT_FALSE(bound->Holds(300'000'001));
  EXPECT_FALSE(Comparison::ParseTime("<= 300").has_value());
}

TEST(Pattern, MatchesInOneLine) {
  const auto pattern = Pattern::Compile("^Failed status 1[0-3]$");
  ASSERT_TRUE(pattern.ok());
  EXPECT_TRUE(pattern->Matches("first\nFailed status 12\nlast"));
  EXPECT_FALSE(pattern->Matches("first Failed status 12"));
  EXPECT_TRUE(pattern->Matches(std::string("\0\nFailed status 12", 18)));
  EXPECT_FALSE(Pattern::Compile("a{2,1}").ok());
}

TEST(SplitWords, KnowsQuotes) {
  EXPECT_THAT(*SplitWords("  sh -c 'a \"b' \"c 'd\\\"\" e\\ f x'y'z ''"),
              ElementsAre("sh", "-c", "a \"b", "c 'd\"", "e f", "xyz", ""));
  EXPECT_FALSE(SplitWords("'a").ok());
  EXPECT_FALSE(SplitWords("  ").ok());
}

TEST(FillIn, ReplacesPlaceholders) {
  const auto value = [](const std::string& name) -> absl::StatusOr<std::string> {
    if (name == "wrong") return absl::NotFoundError("wrong");
    return "<" + name + ">";
  };
  EXPECT_EQ(*FillIn("{a} ${a} { b} {C} {a b}{a", value), "<a> ${a} { b} {C} <a b>{a");
  EXPECT_FALSE(FillIn("{wrong}", value).ok());
}

TEST(Query, FindsValuesAndCountsEntries) {
  const Json items = {{{"device", "roci0"}, {"qpn", 17}}, {{"device", "roci1"}, {"qpn", 18}}};
  EXPECT_EQ(ValueOf(*ParseQuery("qps roci1 /0/qpn"), items), 18);
  EXPECT_EQ(ValueOf(*ParseQuery("qps /1/qpn"), items), 18);
  EXPECT_EQ(ValueOf(*MakeQuery("qps", "", ""), items), 2);
  EXPECT_EQ(ValueOf(*MakeQuery("qps", "roci1", ""), items), 1);
  EXPECT_EQ(ValueOf(*ParseQuery("qps roci1 /0"), items), 2);
  for (const char* nothing : {"qps roci1 /1/qpn", "qps roci2 /0/qpn", "qps /0/x", "qps /x"}) {
    EXPECT_TRUE(ValueOf(*ParseQuery(nothing), items).is_null()) << nothing;
  }
  EXPECT_FALSE(ParseQuery("qps").ok());
  EXPECT_THAT(std::string(ParseQuery("port /0").status().message()),
              HasSubstr("the nearest is ports"));
}

TEST(OutputTail, KeepsTheEnd) {
  OutputTail tail;
  const std::string line(1023, 'x');
  constexpr int kLines = 3000;
  for (int i = 0; i < kLines; ++i) tail.Add(line + "\n");
  tail.Add("the end\n\n");
  EXPECT_LT(tail.text().size(), 2 * OutputTail::kMostBytes);
  EXPECT_EQ(tail.all_bytes(), uint64_t{1024} * kLines + 9);
  EXPECT_EQ(tail.LastLine(), "the end");
}

TEST(OutputTail, LooksAtEachLineOnce) {
  const auto pattern = Pattern::Compile("^ready$");
  OutputTail tail;
  uint64_t position = 0;
  tail.Add("not yet\nrea");
  EXPECT_FALSE(tail.Find(*pattern, position));
  EXPECT_EQ(position, 8);
  tail.Add("dy");
  EXPECT_TRUE(tail.Find(*pattern, position));
  tail.Add("\nmore\n");
  EXPECT_TRUE(tail.Find(*pattern, position));
  EXPECT_FALSE(tail.Find(*pattern, position));
  // Also if its place was dropped meanwhile.
  tail.Add(std::string(3 * OutputTail::kMostBytes, '.') + "\nready\n");
  EXPECT_TRUE(tail.Find(*pattern, position));
}

TEST(OutputTail, CutsItsLastLine) {
  OutputTail tail;
  EXPECT_EQ(tail.LastLine(), "");
  tail.Add("a\tb\x01" + std::string(1000, 'c'));
  EXPECT_EQ(tail.LastLine(), "a b " + std::string(196, 'c'));
}

constexpr int Exited(int status) { return status << 8; }  // as of waitpid(2)

TEST(ProgramEnd, ComparesStatusesAndSignals) {
  using Kind = ProgramEnd::Kind;
  const ProgramEnd usual;
  EXPECT_TRUE(usual.Holds(Exited(0), false));
  EXPECT_FALSE(usual.Holds(Exited(1), false));
  EXPECT_FALSE(usual.Holds(SIGKILL, false));
  const ProgramEnd failure{Kind::kFailure, {}, 0};
  EXPECT_TRUE(failure.Holds(Exited(3), false));
  EXPECT_FALSE(failure.Holds(Exited(0), false));
  EXPECT_FALSE(failure.Holds(SIGSEGV, false));
  const ProgramEnd killed{Kind::kSignal, {}, SIGKILL};
  EXPECT_TRUE(killed.Holds(SIGKILL, false));
  EXPECT_FALSE(killed.Holds(SIGTERM, false));
  EXPECT_FALSE(killed.Holds(Exited(SIGKILL), false));
  const ProgramEnd stopped{Kind::kStopped, {}, 0};
  EXPECT_TRUE(stopped.Holds(SIGTERM, true));
  EXPECT_FALSE(stopped.Holds(Exited(0), false));
}

TEST(TcpPort, IsOfOneOwnerAndWithoutListener) {
  const auto one = TcpPort::Choose();
  const auto two = TcpPort::Choose();
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE(one->number(), two->number());
  EXPECT_FALSE(IsListening(one->number()));
}

}  // namespace
}  // namespace roci::tools
