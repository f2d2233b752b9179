// DCQCN: the sending rate of one queue pair after CNPs, time and sent bytes.
#include "roce/dcqcn.h"

#include <gtest/gtest.h>

namespace roci::roce {
namespace {

constexpr TimeNs kStart = 1'000'000'000;

class DcqcnTest : public ::testing::Test {
 protected:
  DcqcnTest() {
    port_.parameters = CongestionParameters{};
    port_.parameters.line_rate_kbps = 10'000'000;
  }
  CongestionPort port_;
  Dcqcn dcqcn_{&port_};
  const CongestionParameters& p_ = port_.parameters;
};

TEST_F(DcqcnTest, NothingIsThrottledWithoutNotification) {
  EXPECT_FALSE(dcqcn_.throttled());
  EXPECT_FALSE(dcqcn_.Advance(kStart));
  EXPECT_EQ(dcqcn_.rate_kbps(), 10'000'000u);
}

TEST_F(DcqcnTest, AnotherLineRateCountsAtOnce) {
  EXPECT_FALSE(dcqcn_.Advance(kStart));
  for (const uint32_t rate : {25'000'000u, 1'000'000u}) {
    port_.parameters.line_rate_kbps = rate;
    EXPECT_FALSE(dcqcn_.Advance(kStart));
    EXPECT_EQ(dcqcn_.rate_kbps(), rate);
  }
  dcqcn_.HandleCnp(kStart);
  EXPECT_EQ(dcqcn_.rate_kbps(), 500'000u);
}

TEST_F(DcqcnTest, TheFirstNotificationHalvesTheRate) {
  dcqcn_.HandleCnp(kStart);
  EXPECT_TRUE(dcqcn_.throttled());
  EXPECT_EQ(dcqcn_.rate_kbps(), 5'000'000u);
  EXPECT_EQ(dcqcn_.target_kbps(), 10'000'000u);
}

TEST_F(DcqcnTest, OneCutForNotificationsThatComeTogether) {
  for (TimeNs t = 0; t < p_.cut_interval_ns; t += 100) dcqcn_.HandleCnp(kStart + t);
  EXPECT_EQ(dcqcn_.rate_kbps(), 5'000'000u);
  dcqcn_.HandleCnp(kStart + p_.cut_interval_ns);
  EXPECT_EQ(dcqcn_.rate_kbps(), 2'500'000u);
  EXPECT_EQ(dcqcn_.target_kbps(), 5'000'000u);
}

TEST_F(DcqcnTest, AFloodOfCnpsKeepsTheMinimumRate) {
  for (TimeNs t = 0; t < 10'000'000; t += 1000) dcqcn_.HandleCnp(kStart + t);
  EXPECT_EQ(dcqcn_.rate_kbps(), p_.min_rate_kbps);
  EXPECT_TRUE(dcqcn_.Advance(kStart + 10'000'000));
}

TEST_F(DcqcnTest, FastRecoveryGoesHalfOfTheWayEachPeriod) {
  dcqcn_.HandleCnp(kStart);
  uint32_t missing = 5'000'000;
  for (uint32_t step = 1; step < p_.fast_recovery_steps; ++step) {
    EXPECT_TRUE(dcqcn_.Advance(kStart + step * p_.increase_period_ns - 1));
    EXPECT_EQ(dcqcn_.rate_kbps(), 10'000'000 - missing);
    EXPECT_TRUE(dcqcn_.Advance(kStart + step * p_.increase_period_ns));
    missing /= 2;
    EXPECT_EQ(dcqcn_.rate_kbps(), 10'000'000 - missing);
  }
}

TEST_F(DcqcnTest, ThenTheTargetRisesStepByStep) {
  dcqcn_.HandleCnp(kStart);
  dcqcn_.HandleCnp(kStart + p_.cut_interval_ns);
  ASSERT_EQ(dcqcn_.target_kbps(), 5'000'000u);
  const TimeNs cut = kStart + p_.cut_interval_ns;
  dcqcn_.Advance(cut + (p_.fast_recovery_steps - 1) * p_.increase_period_ns);
  EXPECT_EQ(dcqcn_.target_kbps(), 5'000'000u);
  dcqcn_.Advance(cut + (p_.fast_recovery_steps + 2) * p_.increase_period_ns);
  EXPECT_EQ(dcqcn_.target_kbps(), 5'000'000 + 3 * p_.additive_kbps);
}

// The result depends on the elapsed time, not on the number of updates.
TEST_F(DcqcnTest, OneUpdateGivesTheSameResultAsMany) {
  Dcqcn often(&port_);
  for (Dcqcn* each : {&dcqcn_, &often}) {
    each->HandleCnp(kStart);
    each->HandleCnp(kStart + 60'000);
    each->HandleCnp(kStart + 120'000);
  }
  const TimeNs end = kStart + 20'000'000;
  for (TimeNs now = kStart + 120'000; now < end; now += 777) often.Advance(now);
  often.Advance(end);
  dcqcn_.Advance(end);
  EXPECT_EQ(dcqcn_.rate_kbps(), often.rate_kbps());
  EXPECT_EQ(dcqcn_.target_kbps(), often.target_kbps());
  EXPECT_EQ(dcqcn_.alpha(), often.alpha());
}

TEST_F(DcqcnTest, AlphaFallsWhileNoNotificationComesAndCutsBecomeSmall) {
  dcqcn_.HandleCnp(kStart);
  EXPECT_EQ(dcqcn_.alpha(), Dcqcn::kAlphaOne);
  dcqcn_.Advance(kStart + p_.alpha_period_ns - 1);
  EXPECT_EQ(dcqcn_.alpha(), Dcqcn::kAlphaOne);
  dcqcn_.Advance(kStart + p_.alpha_period_ns);
  EXPECT_EQ(dcqcn_.alpha(), Dcqcn::kAlphaOne - Dcqcn::kAlphaOne / 256);
  // CNPs at the shortest interval hold the rate at its minimum.
  TimeNs now = kStart;
  for (int i = 0; i < 300; ++i) dcqcn_.HandleCnp(now += p_.cut_interval_ns);
  const uint32_t low = dcqcn_.rate_kbps();
  EXPECT_EQ(low, p_.min_rate_kbps);
  now += 800 * uint64_t{p_.alpha_period_ns};
  ASSERT_TRUE(dcqcn_.Advance(now));
  EXPECT_LT(dcqcn_.alpha(), Dcqcn::kAlphaOne / 16);
  const uint32_t before = dcqcn_.rate_kbps();
  dcqcn_.HandleCnp(now);
  EXPECT_GT(dcqcn_.rate_kbps(), before - before / 32);
}

TEST_F(DcqcnTest, RecoversToTheLineRateAndResetsAlpha) {
  for (TimeNs t = 0; t < 1'000'000; t += 5000) dcqcn_.HandleCnp(kStart + t);
  TimeNs now = kStart + 1'000'000;
  uint32_t last = dcqcn_.rate_kbps();
  while (dcqcn_.Advance(now)) {
    EXPECT_GE(dcqcn_.rate_kbps(), last);
    last = dcqcn_.rate_kbps();
    now += 50'000;
    ASSERT_LT(now, kStart + 1'000'000'000);
  }
  EXPECT_EQ(dcqcn_.rate_kbps(), 10'000'000u);
  dcqcn_.HandleCnp(now);
  EXPECT_EQ(dcqcn_.rate_kbps(), 5'000'000u);
}

TEST_F(DcqcnTest, APauseOfAnyLengthCostsLittle) {
  dcqcn_.HandleCnp(kStart);
  EXPECT_FALSE(dcqcn_.Advance(kNever - 1));
  EXPECT_EQ(dcqcn_.rate_kbps(), 10'000'000u);
}

TEST_F(DcqcnTest, BytesMakeStepsToo) {
  port_.parameters.increase_bytes = 100'000;
  port_.parameters.fast_recovery_steps = 3;
  dcqcn_.HandleCnp(kStart);
  dcqcn_.HandleCnp(kStart + p_.cut_interval_ns);
  const TimeNs now = kStart + p_.cut_interval_ns;
  for (int packet = 0; packet < 99; ++packet) dcqcn_.Charge(now, 1000);
  EXPECT_EQ(dcqcn_.rate_kbps(), 2'500'000u);
  dcqcn_.Charge(now, 1000);
  EXPECT_EQ(dcqcn_.rate_kbps(), 3'750'000u);
  // Both the timer and the byte counter have passed their thresholds: hyper increase.
  for (int packet = 0; packet < 400; ++packet) dcqcn_.Charge(now, 1000);
  const uint32_t target = dcqcn_.target_kbps();
  dcqcn_.Advance(now + 4 * p_.increase_period_ns);
  EXPECT_EQ(dcqcn_.target_kbps(), target + 3 * p_.additive_kbps + p_.hyper_kbps);
}

TEST_F(DcqcnTest, PacesToTheRateWithABoundedBurst) {
  for (TimeNs t = 0; t < 100'000; t += 4000) dcqcn_.HandleCnp(kStart + t);
  ASSERT_EQ(dcqcn_.rate_kbps(), p_.min_rate_kbps);
  port_.parameters.increase_period_ns = 1'000'000'000;
  // 10 Mb/s: 1250 bytes take a millisecond. The first burst is limited to `burst_bytes`.
  TimeNs now = kStart + 1'000'000'000;
  const auto send_all = [&] {
    uint32_t sent = 0;
    for (; dcqcn_.MayGo(now); ++sent) dcqcn_.Charge(now, 1250);
    return sent;
  };
  EXPECT_LE(send_all() * 1250, p_.burst_bytes + 2 * 1250);
  uint32_t sent = 0;
  for (int ms = 0; ms < 100; ++ms) {
    now = dcqcn_.next_send();
    sent += send_all();
  }
  EXPECT_EQ(sent, 100u);
}

TEST_F(DcqcnTest, NotificationsAreSentAtABoundedRate) {
  Dcqcn other(&port_);
  EXPECT_TRUE(dcqcn_.TakeNotification(kStart));
  EXPECT_FALSE(other.TakeNotification(kStart)) << "the port's bound";
  EXPECT_TRUE(other.TakeNotification(kStart + p_.cnp_port_interval_ns));
  EXPECT_FALSE(dcqcn_.TakeNotification(kStart + p_.cnp_interval_ns - 1));
  EXPECT_TRUE(dcqcn_.TakeNotification(kStart + p_.cnp_interval_ns));
}

}  // namespace
}  // namespace roci::roce
