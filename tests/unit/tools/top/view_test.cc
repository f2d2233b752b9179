#include "tools/top/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace roci::tools {
namespace {

using Json = nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kSecondNs = 1'000'000'000;

Json Qp(uint32_t qpn, const char* program, uint64_t tx, uint64_t rx) {
  return {{"device", "roci0"},
          {"session", 1},
          {"pid", 7},
          {"program", program},
          {"qpn", qpn},
          {"type", "RC"},
          {"state", "RTS"},
          {"tx_packets", tx},
          {"rx_packets", rx},
          {"drops", 0},
          {"remote", "10.99.0.2"},
          {"remote_qpn", 18},
          {"retry_count", 7},
          {"requester",
           {{"window", 3}, {"retries_left", 6}, {"rnr_retries_left", 7}, {"rnr_waiting", true}}}};
}

TopSample Sample(uint64_t at_ns, Json qps, uint64_t tx_packets) {
  TopSample sample;
  sample.at_ns = at_ns;
  sample.qps = std::move(qps);
  sample.counters =
      Json::array({{{"device", "roci0"},
                    {"state", "active"},
                    {"counters", {{"tx_packets", tx_packets}, {"tx_bytes", 1000 * tx_packets}}},
                    {"drops", Json::object()},
                    {"transport", Json::object()}}});
  sample.lcores =
      Json::array({{{"lcore", 0}, {"busy_cycles", at_ns / 4}, {"idle_cycles", at_ns * 3 / 4}}});
  return sample;
}

TEST(TopViewTest, NumbersAreShort) {
  EXPECT_EQ(ShortNumber(0), "0");
  EXPECT_EQ(ShortNumber(0.25), "0.2");
  EXPECT_EQ(ShortNumber(7), "7");
  EXPECT_EQ(ShortNumber(999), "999");
  EXPECT_EQ(ShortNumber(999.6), "1.0K");
  EXPECT_EQ(ShortNumber(1'234), "1.2K");
  EXPECT_EQ(ShortNumber(98'765'432), "99M");
  EXPECT_EQ(ShortNumber(1e18), "1000P");
}

TEST(TopViewTest, RatesAreDifferencesPerSecond) {
  const TopSample before = Sample(kSecondNs, Json::array({Qp(17, "a", 100, 0)}), 1'000);
  const TopSample now = Sample(3 * kSecondNs, Json::array({Qp(17, "a", 4'100, 600)}), 5'000);
  const std::vector<std::string> lines = TopLines(before, now, {});
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "1 queue pairs by tx; lcore 0: 25% busy");
  EXPECT_THAT(lines[2], HasSubstr("roci0        active    2.0K      0     16M"));
  EXPECT_EQ(lines[5],
            "0x000011 a[7]                     2.0K    300       0      3 6/7 7*   RC       RTS   "
            "roci0        10.99.0.2 0x000012");
}

std::vector<std::string> Numbers(const TopSettings& settings) {
  const TopSample before =
      Sample(0, Json::array({Qp(17, "b", 0, 0), Qp(18, "a", 0, 0), Qp(19, "c", 0, 0)}), 0);
  const TopSample now = Sample(
      kSecondNs, Json::array({Qp(17, "b", 10, 30), Qp(18, "a", 20, 20), Qp(19, "c", 0, 0)}), 0);
  std::vector<std::string> numbers;
  const std::vector<std::string> lines = TopLines(before, now, settings);
  for (size_t i = 5; i < lines.size(); ++i) numbers.push_back(lines[i].substr(6, 2));
  return numbers;
}

TEST(TopViewTest, RowsAreOrderedAndFiltered) {
  EXPECT_THAT(Numbers({}), ElementsAre("12", "11", "13"));
  EXPECT_THAT(Numbers({.order = TopOrder::kRx}), ElementsAre("11", "12", "13"));
  EXPECT_THAT(Numbers({.order = TopOrder::kQpn}), ElementsAre("11", "12", "13"));
  EXPECT_THAT(Numbers({.order = TopOrder::kProgram}), ElementsAre("12", "11", "13"));
  EXPECT_THAT(Numbers({.only_active = true}), ElementsAre("12", "11"));
  EXPECT_THAT(Numbers({.program = "c"}), ElementsAre("13"));
  EXPECT_THAT(Numbers({.device = "roci1"}), ElementsAre());
  EXPECT_THAT(Numbers({.lines = 6}), ElementsAre("12"));
}

TEST(TopViewTest, LinesAreCutToTheWidth) {
  const TopSample sample = Sample(kSecondNs, Json::array({Qp(17, "a", 1, 1)}), 1);
  for (const std::string& line : TopLines(sample, sample, {.columns = 20})) {
    EXPECT_LE(line.size(), 20u);
  }
}

TEST(TopViewTest, ForeignNamesCannotControlTheTerminal) {
  const TopSample sample =
      Sample(kSecondNs, Json::array({Qp(17, "a\x1b[2J\xc2\x9b\x7f\xc3\xa9", 1, 1)}), 1);
  const std::vector<std::string> lines = TopLines(sample, sample, {});
  EXPECT_THAT(lines[5], HasSubstr("a?[2J??\xc3\xa9[7]"));
  for (size_t columns = 9; columns < 25; ++columns) {
    const std::string cut = TopLines(sample, sample, {.columns = columns})[5];
    EXPECT_NE(static_cast<unsigned char>(cut.back()), 0xC3) << columns;
  }
}

// The daemon has started again, or gives less than expected.
TEST(TopViewTest, CountsThatShrinkOrAreMissingAreNoRates) {
  const TopSample before = Sample(kSecondNs, Json::array({Qp(17, "a", 100, 100)}), 100);
  TopSample now = Sample(2 * kSecondNs, Json::array({Qp(17, "a", 5, 5)}), 5);
  now.qps[0].erase("requester");
  now.qps[0].erase("program");
  now.counters[0].erase("drops");
  const std::vector<std::string> lines = TopLines(before, now, {});
  EXPECT_THAT(lines[5], HasSubstr("-[7]                        0      0"));
}

}  // namespace
}  // namespace roci::tools
