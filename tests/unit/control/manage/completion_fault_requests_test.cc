// Requests for faults of completions.
#include "control/manage/completion_fault_requests.h"

#include <gtest/gtest.h>

#include <utility>

namespace roci::control {
namespace {

using Json = nlohmann::json;

TEST(CompletionFaultRequestsTest, AFaultIsDescribedAsItWasAsked) {
  for (const char* text :
       {R"({"completion":"send","status":"rem_access_err"})",
        R"({"completion":"*","qps":[17],"status":"general_err","nth":3,"times":2})",
        R"({"completion":"send","program":"rping","created":2,"status":"fatal_err",
            "vendor_error":119})",
        R"({"completion":"send","pid":7,"delay_ns":5,"lose_event":true})",
        R"({"completion":"recv","overflow":true,"nth":2,"times":1})",
        R"({"completion":"recv_rdma_with_imm","status":"wr_flush_err","every":5})"}) {
    Json asked = Json::parse(text);
    ASSERT_TRUE(IsCompletionFault(asked));
    const auto settings = DecodeCompletionFault(asked);
    ASSERT_TRUE(settings.ok()) << settings.status() << text;
    Json described = DescribeCompletionFault({.id = 1, .settings = *settings});
    EXPECT_EQ(described["counters"], Json::parse(R"({"matched":0,"hit":0})"));
    described.erase("fault");
    described.erase("counters");
    EXPECT_EQ(described, asked);
  }
}

TEST(CompletionFaultRequestsTest, APatternChoosesOpcodes) {
  const auto settings =
      DecodeCompletionFault(Json::parse(R"({"completion":"rdma_*","status":"fatal_err"})"));
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->opcodes.count(), 2u);
  EXPECT_TRUE(settings->opcodes.test(static_cast<size_t>(roce::CompletionOpcode::kRdmaRead)));
}

TEST(CompletionFaultRequestsTest, WrongWordsAreRefusedWithTheReason) {
  using Case = std::pair<const char*, const char*>;
  for (const auto& [text, says] :
       {Case{R"({"completion":"send"})", "status"},
        Case{R"({"completion":"send","vendor_error":1})", "needs \"status\""},
        Case{R"({"completion":"send","vendor_error":4294967296,"status":"fatal_err"})", "up to"},
        Case{R"({"completion":"send","overflow":true,"delay_ns":5})", "nothing else"},
        Case{R"({"completion":"send","lose_event":1})", "true or false"},
        Case{R"({"completion":"send","delay_ns":5000000001})", "delay_ns"},
        Case{R"({"completion":"send","overflow":true,"created":0})", "1 or more"},
        Case{R"({"completion":"sent","status":"fatal_err"})", "nearest is send"},
        Case{R"({"completion":"send","status":"fatal"})", "nearest is fatal_err"},
        Case{R"({"completion":"send","status":"success"})", "there is no status"},
        Case{R"({"completion":"send","status":"fatal_err","drop":true})", "no \"drop\""},
        Case{R"({"completion":"send","status":"fatal_err","every":0})", "1 or more"}}) {
    const auto settings = DecodeCompletionFault(Json::parse(text));
    ASSERT_FALSE(settings.ok()) << text;
    EXPECT_NE(settings.status().message().find(says), std::string::npos) << settings.status();
  }
}

}  // namespace
}  // namespace roci::control
