#include "control/config/metrics_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace roci::control {
namespace {

using testing::HasSubstr;

TEST(MetricsAddressTest, IsLoopbackUnlessTheWordSaysSo) {
  struct Case {
    const char* text;
    const char* address;
  };
  for (const Case& each :
       {Case{"9095", "127.0.0.1:9095"}, Case{"127.1.2.3:1", "127.1.2.3:1"},
        Case{"[::1]:65535", "[::1]:65535"}, Case{"public:192.0.2.1:9095", "192.0.2.1:9095"},
        Case{"public:0.0.0.0:9095", "0.0.0.0:9095"}, Case{"public:[::]:9095", "[::]:9095"},
        Case{"public:127.0.0.1:9095", "127.0.0.1:9095"}}) {
    const absl::StatusOr<MetricsAddress> address = ParseMetricsAddress(each.text);
    ASSERT_TRUE(address.ok()) << each.text << ": " << address.status();
    EXPECT_EQ(address->Text(), each.address);
  }
}

TEST(MetricsAddressTest, TheWorldIsRefusedWithTheWord) {
  for (const char* text : {"0.0.0.0:9095", "[::]:9095", "192.0.2.1:9095", "[fe80::1]:9095",
                           "128.0.0.1:9095", "[::ffff:127.0.0.1]:9095"}) {
    const absl::Status status = ParseMetricsAddress(text).status();
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("write public:") + text));
  }
}

TEST(MetricsAddressTest, RefusesNonsense) {
  for (const char* text : {"", ":", "0", "65536", "-1", "x", "127.0.0.1", "127.0.0.1:",
                           "localhost:1", "::1:9095", "[::1]", "[::1:9095", "127.0.0.1:9095 ",
                           "public:", "public:x:1", "Public:0.0.0.0:1", "127.0.0.1:9095:1"}) {
    const absl::Status status = ParseMetricsAddress(text).status();
    EXPECT_FALSE(status.ok()) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is not PORT, ADDRESS:PORT"));
  }
}

}  // namespace
}  // namespace roci::control
