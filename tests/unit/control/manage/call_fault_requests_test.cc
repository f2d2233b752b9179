// Requests for faults of verbs calls.
#include "control/manage/call_fault_requests.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace roci::control {
namespace {

using Json = nlohmann::json;

TEST(CallFaultRequestsTest, AFaultIsDescribedAsItWasAsked) {
  for (const char* text :
       {R"({"verb":"reg_mr","errno":"ENOMEM"})",
        R"({"verb":"create_*","program":"rping","nth":3,"times":2,"errno":"EAGAIN"})",
        R"({"verb":"rdma_connect","pid":77,"errno":"ECONNREFUSED"})",
        R"({"verb":"query_*","limit":["max_qp=16","max_msg_sz=4096"],"every":2})",
        R"({"verb":"modify_qp","delay_ns":20000000000,"chance":0.5,"seed":3,"after_ns":1})"}) {
    Json asked = Json::parse(text);
    ASSERT_TRUE(IsCallFault(asked));
    const auto settings = DecodeCallFault(asked);
    ASSERT_TRUE(settings.ok()) << settings.status() << text;
    Json described = DescribeCallFault({.id = 1, .settings = *settings, .began = 0});
    EXPECT_EQ(described["fault"], 1);
    described.erase("fault");
    described.erase("counters");
    EXPECT_EQ(described, asked);
  }
}

TEST(CallFaultRequestsTest, AnErrnoMayBeANumber) {
  const auto settings = DecodeCallFault(Json::parse(R"({"verb":"reg_mr","errno":12})"));
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->error, 12);
}

TEST(CallFaultRequestsTest, WrongWordsAreRefusedWithTheReason) {
  using Case = std::pair<const char*, const char*>;
  for (const auto& [text, says] :
       {Case{R"({"verb":"reg_mr"})", "does nothing"},
        Case{R"({"verb":"reg_mt","errno":"EIO"})", "nearest is reg_mr"},
        Case{R"({"verb":"post_send","errno":"EIO"})", "executed by the daemon"},
        Case{R"({"verb":7,"errno":"EIO"})", "verb"},
        Case{R"({"verb":"reg_mr","errno":"ENOMEN"})", "errno(3)"},
        Case{R"({"verb":"reg_mr","errno":0})", "errno(3)"},
        Case{R"({"verb":"reg_mr","errno":100000})", "errno(3)"},
        Case{R"({"verb":"rdma_conect","errno":"EIO"})", "nearest is rdma_connect"},
        Case{R"({"verb":"rdma_connect","delay_ns":1})", "can only fail"},
        Case{R"({"verb":"rdma_connect","limit":["max_qp=1"]})", "needs the verb query_device"},
        Case{R"({"verb":"query_device","limit":["max_pq=1"]})", "nearest is max_qp"},
        Case{R"({"verb":"query_device","limit":["max_msg_sz=1"]})", "nearest is"},
        Case{R"({"verb":"query_device","limit":["max_qp"]})", "LIMIT=NUMBER"},
        Case{R"({"verb":"query_device","limit":["max_qp=-1"]})", "LIMIT=NUMBER"},
        Case{R"({"verb":"query_device","limit":"max_qp=1"})", "a list"},
        Case{R"({"verb":"reg_mr","errno":"EIO","pid":0})", "1 or more"},
        Case{R"({"verb":"reg_mr","errno":"EIO","drop":true})", "no \"drop\""},
        Case{R"({"verb":"reg_mr","errno":"EIO","nth":0})", "1 or more"},
        Case{R"({"verb":"reg_mr","errno":"EIO","program":1})", "program"},
        Case{R"({"verb":"reg_mr","delay_ns":20000000001})", "delay_ns"}}) {
    const auto settings = DecodeCallFault(Json::parse(text));
    ASSERT_FALSE(settings.ok()) << text;
    EXPECT_NE(settings.status().message().find(says), std::string::npos) << settings.status();
  }
  EXPECT_FALSE(IsCallFault(Json::parse("[]")));
}

}  // namespace
}  // namespace roci::control
