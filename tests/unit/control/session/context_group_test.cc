// The sessions that share a context: ranges of their handles, reference counts of their objects.
#include "control/session/context_group.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace roci::control {
namespace {

TEST(RefCountTest, SharesGiveTheirPartBack) {
  RefCount original;
  ++original;
  {
    RefCount share = original.Share();
    ++share;
    ++share;
    --share;
    EXPECT_EQ(share.own(), 1u);
    EXPECT_EQ(original.total(), 2u);
  }
  EXPECT_EQ(original.total(), 1u);
  EXPECT_EQ(original.own(), 1u);
}

TEST(ContextGroupTest, FindsTheOwnerOfAHandle) {
  // Only compared, never dereferenced.
  int places[3];
  auto* opener = reinterpret_cast<Session*>(&places[0]);
  auto* second = reinterpret_cast<Session*>(&places[1]);
  auto* third = reinterpret_cast<Session*>(&places[2]);
  ContextGroup group(opener);
  const uint32_t base = group.Join(second);
  EXPECT_EQ(base, ContextGroup::kFirst);
  const uint32_t next = group.Join(third);
  EXPECT_EQ(next, base + ContextGroup::kRange);
  EXPECT_EQ(group.OwnerOf(1), opener);
  EXPECT_EQ(group.OwnerOf(ContextGroup::kFirst - 1), opener);
  EXPECT_EQ(group.OwnerOf(base + 1), second);
  EXPECT_EQ(group.OwnerOf(next - 1), second);
  EXPECT_EQ(group.OwnerOf(next), third);
  EXPECT_EQ(group.OwnerOf(UINT32_MAX), nullptr);
  group.Leave(second);
  EXPECT_EQ(group.OwnerOf(base + 1), nullptr);
  EXPECT_NE(group.Join(second), base) << "ranges go round";
  for (uint32_t i = 0; i < ContextGroup::kMaxMembers - 3; ++i) ASSERT_NE(group.Join(second), 0u);
  EXPECT_EQ(group.Join(second), 0u);
}

}  // namespace
}  // namespace roci::control
