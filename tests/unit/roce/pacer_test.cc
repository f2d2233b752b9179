#include "roce/pacer.h"

#include <gtest/gtest.h>

namespace roci::roce {
namespace {

// Bytes that the pacer lets out within `ns`, in packets of `packet` bytes, polled every `step_ns`.
uint64_t SendFor(Pacer& pacer, TimeNs& now, uint64_t ns, uint64_t step_ns, uint32_t packet) {
  uint64_t bytes = 0;
  for (const TimeNs end = now + ns; now < end; now += step_ns) {
    pacer.HandleTimeout(now);
    while (pacer.MayGo(now)) {
      pacer.Charge(now, packet);
      bytes += packet;
    }
  }
  return bytes;
}

TEST(PacerTest, KeepsToTheRate) {
  for (const uint32_t kbps : {100u, 7'777u, 1'000'000u, 100'000'000u}) {
    for (const uint32_t packet : {60u, 1000u, 4200u}) {
      Pacer pacer;
      pacer.Set(kbps, 0);
      TimeNs now = 12345;
      // Long enough for a thousand packets, so that the first one, sent at once, hardly counts.
      const uint64_t ns = uint64_t{packet} * 8'000'000 * 1000 / kbps + 1;
      const auto bytes =
          static_cast<double>(SendFor(pacer, now, ns, std::max<uint64_t>(ns / 5000, 1), packet));
      EXPECT_NEAR(bytes / packet, 1000, 10) << kbps << " " << packet;
    }
  }
}

TEST(PacerTest, CatchesUpAfterAPauseAsFarAsTheBurstGoes) {
  constexpr uint32_t kKbps = 80'000;  // 10 bytes a microsecond
  Pacer pacer;
  pacer.Set(kKbps, 5000);
  TimeNs now = 1'000'000;
  EXPECT_EQ(SendFor(pacer, now, 1, 1, 100), 100u) << "nothing was saved up before";
  now += 200'000;  // 2000 bytes' worth
  EXPECT_NEAR(static_cast<double>(SendFor(pacer, now, 1, 1, 100)), 2000, 100);
  now += 100'000'000;  // a million bytes' worth
  EXPECT_NEAR(static_cast<double>(SendFor(pacer, now, 1, 1, 100)), 5000, 100);
}

TEST(PacerTest, SaysWhenToAskAgain) {
  Pacer pacer;
  EXPECT_FALSE(pacer.limited());
  EXPECT_EQ(pacer.wake_time(), kNever);
  pacer.Set(8000, 1);  // a byte a microsecond
  EXPECT_TRUE(pacer.limited());
  EXPECT_TRUE(pacer.MayGo(100));
  pacer.Charge(100, 50);
  EXPECT_FALSE(pacer.waiting()) << "nobody asked";
  EXPECT_FALSE(pacer.MayGo(101));
  EXPECT_TRUE(pacer.waiting());
  EXPECT_EQ(pacer.wake_time(), 100u + 50'000);
  pacer.HandleTimeout(50'000);
  EXPECT_TRUE(pacer.waiting()) << "too early";
  pacer.HandleTimeout(50'100);
  EXPECT_FALSE(pacer.waiting());
  pacer.Set(0, 0);
  EXPECT_FALSE(pacer.limited());
}

}  // namespace
}  // namespace roci::roce
