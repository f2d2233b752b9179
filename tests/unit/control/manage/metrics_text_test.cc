#include "control/manage/metrics_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "absl/strings/match.h"
#include "control/device/call_times.h"
#include "control/manage/metric_families.h"

namespace roci::control {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

std::string Open(const Json& snapshot) {
  return MetricsText(snapshot, MetricsFormat::kOpenMetrics);
}
std::string Plain(const Json& snapshot) {
  return MetricsText(snapshot, MetricsFormat::kPrometheus);
}

TEST(MetricFamilyTest, NamesAndHelpTextsAreThere) {
  std::set<std::string> names;
  for (const MetricFamily& family : MetricFamilies()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name << " twice";
    EXPECT_NE(family.help, "") << family.name;
    EXPECT_EQ(family.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"),
              std::string::npos);
    for (const char* suffix : {"_total", "_info", "_count", "_sum", "_bucket"}) {
      EXPECT_FALSE(absl::EndsWith(family.name, suffix)) << family.name;
    }
  }
}

TEST(MetricsTextTest, CountersHaveTheirSuffixWhereTheFormatWantsIt) {
  const Json snapshot = {
      {"ports", {{{"device", "roci0"}, {"counters", {{"rx_bytes", 18446744073709551615u}}}}}}};
  EXPECT_THAT(Open(snapshot), HasSubstr("# HELP roci_device_rx_bytes Bytes of received frames, "
                                        "without FCS\n# TYPE roci_device_rx_bytes counter\n"
                                        "# UNIT roci_device_rx_bytes bytes\n"
                                        "roci_device_rx_bytes_total{device=\"roci0\"} "
                                        "18446744073709551615\n"));
  EXPECT_THAT(Open(snapshot), EndsWith("# EOF\n"));
  EXPECT_THAT(Plain(snapshot), HasSubstr("# TYPE roci_device_rx_bytes_total counter\n"
                                         "roci_device_rx_bytes_total{device=\"roci0\"} "));
  EXPECT_THAT(Plain(snapshot), Not(HasSubstr("# UNIT")));
  EXPECT_THAT(Plain(snapshot), Not(HasSubstr("# EOF")));
}

TEST(MetricsTextTest, MembersOfAnObjectHaveALabel) {
  const Json snapshot = {{"ports", {{{"device", "roci0"}, {"drops", {{"icrc", 3}, {"qkey", 0}}}}}}};
  EXPECT_THAT(Open(snapshot),
              HasSubstr("roci_device_dropped_packets_total{device=\"roci0\",reason=\"icrc\"} 3\n"
                        "roci_device_dropped_packets_total{device=\"roci0\",reason=\"qkey\"} 0\n"));
}

TEST(MetricsTextTest, ForeignTextIsEscaped) {
  const Json snapshot = {
      {"programs", {{{"program", "a\"b\\c\nd\xff"}, {"uid", "1000"}, {"sessions", 2}}}}};
  EXPECT_THAT(
      Open(snapshot),
      HasSubstr("roci_program_sessions{program=\"a\\\"b\\\\c\\nd\xEF\xBF\xBD\",uid=\"1000\"} "
                "2\n"));
}

TEST(MetricsTextTest, ScalesAndBooleans) {
  const Json snapshot = {
      {"devices", {{{"name", "roci0"}, {"link_up", true}, {"rate_mbps", 100000}}}},
      {"lcores", {{{"lcore", 1}, {"ran_ms", 1500}, {"waited_for_processor_ms", nullptr}}}}};
  const std::string text = Open(snapshot);
  EXPECT_THAT(text, HasSubstr("roci_device_link_up{device=\"roci0\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("roci_device_rate_bytes_per_second{device=\"roci0\"} 12500000000\n"));
  EXPECT_THAT(text, HasSubstr("roci_lcore_ran_seconds_total{lcore=\"1\"} 1.5\n"));
  EXPECT_THAT(text, Not(HasSubstr("roci_lcore_waited_for_processor_seconds_total{")))
      << "the kernel does not measure it";
}

TEST(MetricsTextTest, InfoIsOneInBothFormats) {
  const Json snapshot = {{"daemon", {{{"version", "0.1.0"}, {"start_time", 1.5}}}}};
  EXPECT_THAT(Open(snapshot),
              HasSubstr("# TYPE roci_daemon info\nroci_daemon_info{version=\"0.1.0\"} 1\n"));
  EXPECT_THAT(Plain(snapshot),
              HasSubstr("# TYPE roci_daemon_info gauge\nroci_daemon_info{version=\"0.1.0\"} 1\n"));
}

TEST(MetricsTextTest, HistogramsAreCumulative) {
  CallTimes::Histogram histogram;
  histogram.buckets[0] = 5;
  histogram.buckets[1] = 2;
  histogram.buckets.back() = 1;
  const Json snapshot = {{"calls",
                          {{{"call", "reg_mr"},
                            {"buckets", histogram.buckets},
                            {"sum_ns", 2'500'000'000},
                            {"refused", 3}}}}};
  const std::string text = Open(snapshot);
  const std::string name = "roci_control_call_duration_seconds";
  for (const char* line :
       {"_bucket{call=\"reg_mr\",le=\"4e-06\"} 5\n", "_bucket{call=\"reg_mr\",le=\"1.6e-05\"} 7\n",
        "_bucket{call=\"reg_mr\",le=\"10\"} 7\n", "_bucket{call=\"reg_mr\",le=\"+Inf\"} 8\n",
        "_count{call=\"reg_mr\"} 8\n", "_sum{call=\"reg_mr\"} 2.5\n"}) {
    EXPECT_THAT(text, HasSubstr(name + line));
  }
  EXPECT_THAT(text, HasSubstr("roci_control_calls_refused_total{call=\"reg_mr\"} 3\n"));
}

TEST(MetricsTextTest, AnEmptySnapshotHasNoSamples) {
  for (const std::string& text : {Open(Json::object()), Plain(Json::object())}) {
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      EXPECT_EQ(text[begin], '#');
    }
  }
}

}  // namespace
}  // namespace roci::control
