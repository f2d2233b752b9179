// Requests for captures and impairments, and the pcapng output of a capture.
#include "control/manage/link_requests.h"

#include <gtest/gtest.h>

#include <cstring>

#include "control/manage/pcapng_writer.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;
using dataplane::LinkDirection;

TEST(LinkRequestsTest, AnImpairmentWithEverything) {
  const auto settings = DecodeImpairment(
      Json::parse(R"({"direction":"in","loss":0.5,"duplicate":1,"corrupt":0,"reorder":0.25,
                      "ecn":0.001,"delay_ns":5,"reorder_ns":7,"seed":18446744073709551615,
                      "qps":[1,16777215],"opcodes":[0,255]})"));
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->direction, LinkDirection::kIn);
  EXPECT_EQ(settings->loss, dataplane::kAlways / 2);
  EXPECT_EQ(settings->duplicate, dataplane::kAlways);
  EXPECT_EQ(settings->corrupt, 0u);
  EXPECT_EQ(settings->reorder_ns, 7u);
  EXPECT_EQ(settings->seed, UINT64_MAX);
  EXPECT_EQ(settings->filter.qpns.size(), 2u);
  EXPECT_TRUE(settings->filter.opcodes.test(255));
  const Json words = DescribeImpairment(*settings, {});
  EXPECT_EQ(words["loss"], 0.5);
  EXPECT_EQ(words["ecn"], 0.001);
  EXPECT_EQ(words["counters"]["lost"], 0);
}

TEST(LinkRequestsTest, QueuePairsInAnyOrderAreTheSameChoice) {
  const auto filter = [](const char* text) {
    const auto settings = DecodeImpairment(nlohmann::json::parse(text));
    EXPECT_TRUE(settings.ok()) << settings.status();
    return settings->filter;
  };
  const dataplane::FrameFilter asked = filter(R"({"loss":1,"qps":[6,5,6],"peers":[9]})");
  EXPECT_EQ(asked, filter(R"({"loss":1,"qps":[5,6]})")) << "their peers may be gone";
  EXPECT_FALSE(asked == filter(R"({"loss":1,"qps":[5,6,9]})"));
  EXPECT_EQ(asked.peers, std::vector<roce::Qpn>{roce::Qpn(9)});
}

TEST(LinkRequestsTest, ARateHasAQueue) {
  const auto settings = DecodeImpairment(Json::parse(R"({"rate_bps":10000000000})"));
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->bottleneck.rate_bps, 10'000'000'000u);
  EXPECT_EQ(settings->bottleneck.queue_bytes, 1u << 20);
  EXPECT_EQ(settings->bottleneck.ecn_bytes, 0u);
  Json words = DescribeImpairment(*settings, {});
  EXPECT_EQ(words["rate_bps"], 10'000'000'000u);
  EXPECT_EQ(words["rate_queue_bytes"], 1u << 20);
  EXPECT_FALSE(words.contains("rate_ecn_bytes"));
  EXPECT_EQ(words["counters"]["rate_dropped"], 0);
  // A slow bottleneck has a shorter queue.
  EXPECT_EQ(DecodeImpairment(Json::parse(R"({"rate_bps":100000})"))->bottleneck.queue_bytes,
            62500u);
  const auto all = DecodeImpairment(
      Json::parse(R"({"rate_bps":1000000000,"rate_queue_bytes":5000,"rate_ecn_bytes":4999})"));
  ASSERT_TRUE(all.ok()) << all.status();
  words = DescribeImpairment(*all, {});
  EXPECT_EQ(words["rate_queue_bytes"], 5000);
  EXPECT_EQ(words["rate_ecn_bytes"], 4999);
  EXPECT_EQ(words["rate_ecn_all_bytes"], 5 * 4999);
  EXPECT_FALSE(DescribeImpairment(*DecodeImpairment({{"loss", 1}}), {}).contains("rate_bps"));
  for (const char* text :
       {R"({"rate_bps":99999})", R"({"rate_bps":1000000000001})", R"({"rate_bps":"1Gbit"})",
        R"({"rate_bps":0})", R"({"rate_queue_bytes":5,"loss":1})",
        R"({"rate_ecn_bytes":5,"loss":1})", R"({"rate_bps":1000000,"rate_queue_bytes":625001})",
        R"({"rate_bps":1000000,"rate_queue_bytes":5000,"rate_ecn_bytes":5000})",
        R"({"rate_bps":1000000,"rate_ecn_all_bytes":5000})"}) {
    EXPECT_FALSE(DecodeImpairment(Json::parse(text)).ok()) << text;
  }
}

TEST(LinkRequestsTest, NonsenseIsRefused) {
  for (const char* text :
       {"{}", R"({"loss":0})", R"({"loss":1.01})", R"({"loss":-0.1})", R"({"loss":"1"})",
        R"({"delay_ns":5000000001})", R"({"delay_ns":-1})", R"({"delay_ns":1,"seed":-1})",
        R"({"delay_ns":1,"direction":"both"})", R"({"delay_ns":1,"direction":7})",
        R"({"delay_ns":1,"qps":[16777216]})", R"({"delay_ns":1,"qps":7})",
        R"({"delay_ns":1,"qps":["x"]})", R"({"delay_ns":1,"opcodes":[256]})"}) {
    EXPECT_FALSE(DecodeImpairment(Json::parse(text)).ok()) << text;
  }
  Json many = {{"delay_ns", 1}};
  for (int i = 0; i < 65; ++i) many["qps"].push_back(i);
  EXPECT_FALSE(DecodeImpairment(many).ok());
  EXPECT_FALSE(DecodeCapture(Json::parse(R"({"snap_length":65536})")).ok());
  EXPECT_FALSE(DecodeCapture(Json::parse(R"({"direction":"up"})")).ok());
  EXPECT_FALSE(DeviceOfRequest(Json::parse(R"({"device":5})")).ok());
}

TEST(LinkRequestsTest, ACaptureOfOneDirection) {
  const auto request = DecodeCapture(Json::parse(R"({"direction":"out","count":9})"));
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(request->settings.in);
  EXPECT_TRUE(request->settings.out);
  EXPECT_EQ(request->count, 9u);
  EXPECT_EQ(request->settings.snap_length, UINT32_MAX);
}

TEST(PcapngWriterTest, BlocksHaveTheirLengthTwiceAndAreAligned) {
  std::string out;
  pcapng::AppendHeader("roci0", 0, out);
  const std::byte bytes[5] = {};
  for (size_t length = 0; length <= 5; ++length) {
    pcapng::AppendPacket(1, pcapng::Direction::kIn, std::span(bytes, length), 60, out);
  }
  pcapng::AppendStatistics(2, 10, 3, out);
  size_t blocks = 0;
  for (size_t at = 0; at < out.size(); ++blocks) {
    uint32_t length = 0;
    ASSERT_LE(at + 12, out.size());
    std::memcpy(&length, out.data() + at + 4, 4);
    ASSERT_EQ(length % 4, 0u);
    ASSERT_LE(at + length, out.size());
    EXPECT_EQ(std::memcmp(out.data() + at + 4, out.data() + at + length - 4, 4), 0);
    at += length;
  }
  EXPECT_EQ(blocks, 2u + 6 + 1);
}

}  // namespace
}  // namespace roci::control
