// Requests for exact faults.
#include "control/manage/fault_requests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "control/cm/mad.h"
#include "control/config/nearest_name.h"

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
        R"({"direction":"out","program":"rping","created":3,"peer":"10.99.0.2","drop":true})",
        R"({"direction":"in","pid":77,"peer":"fd00::2","inject":"cnp"})",
        R"({"direction":"out","inject":"nak_access","drop":true,"set":["aeth.msn=1"],
            "icrc":"fix"})",
        R"({"direction":"out","inject":"stale","nth":4,"times":2})",
        R"({"direction":"out","cm":"rep","inject":"dreq"})",
        R"({"direction":"in","cm":"req","reject":28})",
        R"({"direction":"out","cm":"sidr_req","reject":255})",
        R"({"direction":"out","frame":"000102030405060708090a0b0c0d0e0f"})",
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
                         {R"({"drop":true,"program":"a_very_long_name"})", "15 bytes"},
                         {R"({"drop":true,"pid":0})", "1 or more"},
                         {R"({"drop":true,"created":0})", "1 or more"},
                         {R"({"drop":true,"peer":"10.99"})", "address"},
                         {R"({"inject":"nak_acess"})", "nearest is nak_access"},
                         {R"({"inject":7})", "\"inject\""},
                         {R"({"inject":"dreq"})", "needs \"cm\": rep"},
                         {R"({"inject":"dreq","cm":"rtu"})", "needs \"cm\": rep"},
                         {R"({"reject":28})", "needs \"cm\""},
                         {R"({"reject":28,"cm":"rtu"})", "needs \"cm\""},
                         {R"({"reject":65536,"cm":"req"})", "up to 65535"},
                         {R"({"reject":256,"cm":"sidr_req"})", "up to 255"},
                         {R"({"reject":"stale","cm":"req"})", "nearest is stale_conn"},
                         {R"({"reject":8,"cm":"req","delay_ns":1})", "nothing else"},
                         {R"({"inject":"cnp","frame":"00"})", "one frame"},
                         {R"({"frame":"0001"})", "hexadecimal"},
                         {R"({"frame":"00010203040506070809101112131"})", "hexadecimal"},
                         {R"({"frame":"xx01020304050607080910111213"})", "hexadecimal"},
                         {R"([])", "an object"}}) {
    const auto settings = DecodeFault(Json::parse(each.request));
    ASSERT_FALSE(settings.ok()) << each.request;
    EXPECT_NE(std::string(settings.status().message()).find(each.says), std::string::npos)
        << settings.status() << " for " << each.request;
  }
  Json many = {{"drop", false}};
  for (int i = 0; i < 17; ++i) many["flip"].push_back("payload:1");
  EXPECT_FALSE(DecodeFault(many).ok());
  const Json longest = {{"frame", std::string(2 * dataplane::Injection::kMostBytes, '0')}};
  EXPECT_TRUE(DecodeFault(longest).ok());
  const Json longer = {{"frame", std::string(2 * dataplane::Injection::kMostBytes + 2, '0')}};
  EXPECT_FALSE(DecodeFault(longer).ok());
}

// What a packet becomes that is answered with a MAD, byte by byte.
cm::Message AnswerTo(const cm::Message& message, const char* request) {
  const auto settings = DecodeFault(Json::parse(request));
  EXPECT_TRUE(settings.ok()) << settings.status();
  const dataplane::Injection& injection = settings->actions.injection;
  const cm::MadBytes asked = cm::BuildMad(message);
  cm::MadBytes answer;
  std::copy(injection.bytes.begin(), injection.bytes.end(), answer.begin());
  for (const auto& copy : injection.copies) {
    std::copy_n(asked.begin() + copy.from, copy.bytes, answer.begin() + copy.to);
  }
  cm::Message out;
  EXPECT_EQ(cm::ParseMad(answer, out), cm::MadReason::kNone);
  EXPECT_EQ(out.transaction, message.transaction);
  return out;
}

TEST(FaultRequestsTest, RejectionsNameTheMessageThatTheyAnswer) {
  cm::Req req;
  req.local_id = 0x11223344;
  const auto of_req =
      std::get<cm::Rej>(AnswerTo({7, req}, R"({"cm":"req","reject":"invalid_service_id"})").body);
  EXPECT_EQ(of_req.remote_id, req.local_id);
  EXPECT_EQ(of_req.local_id, 0u);
  EXPECT_EQ(of_req.reason, 8u);
  EXPECT_EQ(of_req.about, static_cast<uint8_t>(cm::AboutMessage::kReq));
  cm::Rep rep;
  rep.local_id = 0x55667788;
  rep.remote_id = 0x11223344;
  rep.local_qpn = 0x123456;
  const auto of_rep = std::get<cm::Rej>(AnswerTo({8, rep}, R"({"cm":"rep","reject":28})").body);
  EXPECT_EQ(of_rep.remote_id, rep.local_id);
  EXPECT_EQ(of_rep.local_id, rep.remote_id);
  EXPECT_EQ(of_rep.about, static_cast<uint8_t>(cm::AboutMessage::kRep));
  const auto dreq = std::get<cm::Dreq>(AnswerTo({9, rep}, R"({"cm":"rep","inject":"dreq"})").body);
  EXPECT_EQ(dreq.remote_id, rep.local_id);
  EXPECT_EQ(dreq.local_id, rep.remote_id);
  EXPECT_EQ(dreq.remote_qpn, rep.local_qpn);
  cm::SidrReq sidr;
  sidr.request_id = 5;
  sidr.service_id = 0x0102030405060708;
  const auto of_sidr =
      std::get<cm::SidrRep>(AnswerTo({10, sidr}, R"({"cm":"sidr_req","reject":2})").body);
  EXPECT_EQ(of_sidr.request_id, sidr.request_id);
  EXPECT_EQ(of_sidr.service_id, sidr.service_id);
  EXPECT_EQ(of_sidr.status, 2u);
}

// Each action with each match: accepted, and described as asked.
TEST(FaultRequestsTest, EveryActionGoesWithEveryMatch) {
  const std::vector<Json> matches = {{{"direction", "in"}},
                                     {{"qps", {5, 6}}},
                                     {{"qps", {5}}, {"peers", {7}}},
                                     {{"opcodes", {4, 17}}},
                                     {{"program", "rping"}},
                                     {{"pid", 9}},
                                     {{"created", 2}},
                                     {{"program", "rping"}, {"created", 1}},
                                     {{"peer", "10.99.0.2"}},
                                     {{"psn", 5}},
                                     {{"psn", 5}, {"psn_from_first", true}},
                                     {{"psn", 5}, {"pass", 2}},
                                     {{"nth", 3}, {"times", 1}},
                                     {{"every", 4}},
                                     {{"times", 4}},
                                     {{"after_ns", 5}},
                                     {{"for_ns", 5}},
                                     {{"chance", 0.25}},
                                     {{"chance", 0.5}, {"seed", 3}},
                                     {{"cm", "req"}},
                                     {{"cm", "rep"}}};
  const std::vector<Json> actions = {{{"drop", true}},
                                     {{"delay_ns", 5}},
                                     {{"reorder", 2}},
                                     {{"duplicate", 1}},
                                     {{"truncate", 1}},
                                     {{"ecn", true}},
                                     {{"set", {"bth.psn+=1"}}, {"icrc", "fix"}},
                                     {{"flip", {"payload:0"}}, {"icrc", "keep"}},
                                     {{"inject", "cnp"}},
                                     {{"inject", "nak_access"}},
                                     {{"inject", "rnr_nak"}, {"drop", true}},
                                     {{"inject", "stale"}},
                                     {{"inject", "dreq"}},
                                     {{"reject", 28}},
                                     {{"frame", "000102030405060708090a0b0c0d0e0f"}}};
  for (const Json& match : matches) {
    for (const Json& action : actions) {
      Json asked = match;
      asked.update(action);
      if (!asked.contains("direction")) asked["direction"] = "out";
      asked = Json::parse(asked.dump());  // with unsigned numbers
      const auto settings = DecodeFault(asked);
      const std::string cm = asked.value("cm", "");
      const bool fits = action.value("inject", "") == "dreq" ? cm == "rep"
                        : action.contains("reject")          ? !cm.empty()
                                                             : true;
      ASSERT_EQ(settings.ok(), fits) << asked << settings.status();
      if (!fits) continue;
      Json described = DescribeFault(1, *settings, {});
      described.erase("fault");
      described.erase("counters");
      EXPECT_EQ(described, asked);
    }
  }
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
