// Requests for exact faults.
#include "control/manage/fault_requests.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "control/manage/nearest_name.h"

namespace roci::control {
namespace {

using Json = nlohmann::json;

TEST(FaultRequestsTest, AFaultIsDescribedAsItWasAsked) {
  for (const char* text :
       {R"({"direction":"in","drop":true,"qps":[5],"peers":[6],"opcodes":[4,17],"times":3})",
        R"({"direction":"out","psn":16777215,"psn_from_first":true,"pass":2,"delay_ns":5})",
        R"({"direction":"out","after_ns":1,"for_ns":2,"nth":3,"every":4,"chance":0.25,"seed":7,
            "reorder":9})",
        R"({"direction":"out","drop":true,"nth":5,"times":0})",
        R"({"direction":"out","cm":"sidr_rep","drop":true})",
        R"({"direction":"out","duplicate":2,"truncate":3,"ecn":true})",
        R"({"direction":"out","set":["bth.psn+=1","bth.psn-=2","aeth.syndrome=98"],"icrc":"keep",
            "flip":["headers:0","payload:9","icrc:31"]})"}) {
    Json asked = Json::parse(text);
    const auto settings = DecodeFault(asked);
    ASSERT_TRUE(settings.ok()) << settings.status() << text;
    Json described = DescribeFault(1, *settings, {});
    described.erase("fault");
    described.erase("counters");
    EXPECT_EQ(described, asked);
  }
}

TEST(FaultRequestsTest, OnePacketUnlessItSaysHowMany) {
  const auto times = [](const char* text) {
    return DecodeFault(Json::parse(text))->match.when.times;
  };
  EXPECT_EQ(times(R"({"drop":true})"), 0u);
  EXPECT_EQ(times(R"({"drop":true,"nth":5})"), 1u);
  EXPECT_EQ(times(R"({"drop":true,"nth":5,"times":0})"), 0u);
  EXPECT_EQ(times(R"({"drop":true,"nth":5,"every":2})"), 0u);
}

TEST(FaultRequestsTest, TheIcrcIsFixedAfterFieldsAndKeptAfterBits) {
  const auto fixes = [](const char* text) {
    return DecodeFault(Json::parse(text))->actions.fixes_icrc;
  };
  EXPECT_TRUE(fixes(R"({"set":["bth.se=1"]})"));
  EXPECT_FALSE(fixes(R"({"set":["bth.se=1"],"icrc":"keep"})"));
  EXPECT_FALSE(fixes(R"({"flip":["payload:0"]})"));
  EXPECT_TRUE(fixes(R"({"flip":["payload:0"],"icrc":"fix"})"));
}

TEST(FaultRequestsTest, ValuesHaveNames) {
  const auto settings = DecodeFault(Json::parse(R"({"set":["aeth.syndrome=nak_access"]})"));
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->actions.changes[0].value, 0x62u);
}

TEST(FaultRequestsTest, NonsenseIsRefusedWithTheReason) {
  struct Case {
    const char* request;
    std::string_view says;
  };
  for (const Case& each :
       std::vector<Case>{{R"({})", "does nothing"},
                         {R"({"drop":false})", "does nothing"},
                         {R"({"drop":true,"delay_ns":5})", "nothing else"},
                         {R"({"delay_ns":5,"reorder":5})", "either"},
                         {R"({"drop":1})", "true or false"},
                         {R"({"drop":true,"cm":"rpe"})", "nearest is re"},
                         {R"({"drop":true,"cm":16})", "\"cm\""},
                         {R"({"dropp":true})", "nearest is \"drop\""},
                         {R"({"drop":true,"direction":"both"})", "in or out"},
                         {R"({"drop":true,"psn":16777216})", "up to 16777215"},
                         {R"({"drop":true,"pass":2})", "needs \"psn\""},
                         {R"({"drop":true,"psn_from_first":true})", "needs \"psn\""},
                         {R"({"drop":true,"nth":0})", "1 or more"},
                         {R"({"drop":true,"every":0})", "1 or more"},
                         {R"({"drop":true,"chance":1.5})", "probability"},
                         {R"({"drop":true,"chance":1e-12})", "at least 2^-32"},
                         {R"({"drop":true,"qps":[16777216]})", "numbers up to"},
                         {R"({"duplicate":17})", "up to 16"},
                         {R"({"set":["bth.pns+=1"]})", "nearest is bth.psn"},
                         {R"({"set":["bth.psn"]})", "FIELD=VALUE"},
                         {R"({"set":["=1"]})", "FIELD=VALUE"},
                         {R"({"set":["bth.psn=16777216"]})", "up to 16777215"},
                         {R"({"set":["bth.psn=-1"]})", "not a value"},
                         {R"({"set":["aeth.syndrome=nak"]})", "nak_access"},
                         {R"({"set":"bth.psn=1"})", "a list"},
                         {R"({"set":[1]})", "a list"},
                         {R"({"flip":["payload"]})", "payload:BIT"},
                         {R"({"flip":["ethernet:1"]})", "payload:BIT"},
                         {R"({"flip":["payload:-1"]})", "payload:BIT"},
                         {R"({"icrc":"fix","drop":true})", "needs \"set\" or \"flip\""},
                         {R"({"set":["bth.se=1"],"icrc":"no"})", "fix or keep"},
                         {R"([])", "an object"}}) {
    const auto settings = DecodeFault(Json::parse(each.request));
    ASSERT_FALSE(settings.ok()) << each.request;
    EXPECT_NE(std::string(settings.status().message()).find(each.says), std::string::npos)
        << settings.status() << " for " << each.request;
  }
  Json many = {{"drop", false}};
  for (int i = 0; i < 17; ++i) many["flip"].push_back("payload:1");
  EXPECT_FALSE(DecodeFault(many).ok());
}

TEST(NearestNameTest, NeedsTheFewestChanges) {
  const std::vector<std::string_view> names = {"bth.psn", "bth.pkey", "reth.rkey", "aeth.msn"};
  EXPECT_EQ(NearestName("psn", names), "bth.psn");
  EXPECT_EQ(NearestName("bth.pkye", names), "bth.pkey");
  EXPECT_EQ(NearestName("rkey", names), "reth.rkey");
  EXPECT_EQ(NearestName("", names), "bth.psn");
  EXPECT_EQ(NearestName(std::string(100'000, 'x'), names).empty(), false);
}

}  // namespace
}  // namespace roci::control
