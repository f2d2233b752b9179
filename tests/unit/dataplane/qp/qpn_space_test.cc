// Allocation of queue pair numbers.
#include "dataplane/qp/qpn_space.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>

namespace roci::dataplane {
namespace {

TEST(QpnSpace, NumbersContainTheLcoreAndAreNotReusedSoon) {
  QpnSpace space(3, 42);
  EXPECT_EQ(space.lcore_bits(), 2u);
  std::set<uint32_t> seen;
  for (int i = 0; i < 5000; ++i) {
    const auto qpn = space.Allocate(2);
    ASSERT_TRUE(qpn.has_value());
    EXPECT_EQ(QpnSpace::LcoreOf(*qpn, 2), 2u);
    EXPECT_TRUE(seen.insert(qpn->value()).second);
    space.Free(*qpn);
  }
}

TEST(QpnSpace, AllocatesEverySlotExactlyOnce) {
  for (const uint32_t lcores : {1u, 2u, 16u}) {
    QpnSpace space(lcores, lcores);
    std::set<uint32_t> slots;
    for (uint32_t i = 0; i < QpnSpace::kSlots; ++i) {
      const auto qpn = space.Allocate(0);
      ASSERT_TRUE(qpn.has_value());
      EXPECT_GT(qpn->value(), 1u);
      EXPECT_NE(*qpn, roce::kMulticastQpn);
      slots.insert(QpnSpace::SlotOf(*qpn, space.lcore_bits()));
    }
    EXPECT_EQ(slots.size(), QpnSpace::kSlots);
    EXPECT_FALSE(space.Allocate(0).has_value());
  }
}

}  // namespace
}  // namespace roci::dataplane
