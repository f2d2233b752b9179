// Quotas and the shares taken of them.
#include "control/device/quota.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

namespace roci::control {
namespace {

TEST(QuotaTest, HoldsItsLimitExactly) {
  Quota quota(3);
  EXPECT_TRUE(quota.Take(2));
  EXPECT_FALSE(quota.Take(2));
  EXPECT_TRUE(quota.Take(1));
  EXPECT_FALSE(quota.Take());
  EXPECT_FALSE(quota.Take(~uint64_t{0})) << "no wrap";
  quota.Give(3);
  EXPECT_EQ(quota.used(), 0u);
}

TEST(QuotaTest, SharesGiveBackOnce) {
  Quota quota(2);
  {
    QuotaShare a(quota, 2);
    EXPECT_TRUE(a.ok());
    QuotaShare refused(quota, 1);
    EXPECT_FALSE(refused.ok());
    QuotaShare b = std::move(a);
    EXPECT_EQ(quota.used(), 2u);
    b = QuotaShare();
    EXPECT_EQ(quota.used(), 0u);
    a = QuotaShare(quota, 1);
    a = QuotaShare(quota, 1);
    EXPECT_EQ(quota.used(), 1u);
  }
  EXPECT_EQ(quota.used(), 0u);
}

TEST(QuotaTest, RefusalsNameTheKeysThatChangeTheLimit) {
  EXPECT_EQ(LimitReached("memory regions", "limits.max_mr").message(),
            "limit of memory regions reached (limits.max_mr, limits.user_percent)");
  EXPECT_EQ(LimitReached("flow rules").message(),
            "limit of flow rules reached (limits.user_percent)");
}

}  // namespace
}  // namespace roci::control
