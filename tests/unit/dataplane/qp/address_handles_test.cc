// The table of address handles: protection domains, capacity, reuse of handles.
#include "dataplane/qp/address_handles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace roci::dataplane {
namespace {

TEST(AddressHandles, HandlesAreValidOnlyInTheirProtectionDomain) {
  AddressHandles table(2);
  uint32_t a = 0;
  uint32_t b = 0;
  ASSERT_TRUE(table.Add(1, {}, &a));
  ASSERT_TRUE(table.Add(1, {}, &b));
  uint32_t c = 0;
  EXPECT_FALSE(table.Add(1, {}, &c));
  EXPECT_NE(table.Find(a, 1), nullptr);
  EXPECT_EQ(table.Find(a, 2), nullptr);
  EXPECT_EQ(table.Find(99, 1), nullptr);
  EXPECT_TRUE(table.Remove(a));
  EXPECT_FALSE(table.Remove(a));
  ASSERT_TRUE(table.Add(2, {}, &c));
  EXPECT_EQ(c, a);
  EXPECT_EQ(table.Find(a, 1), nullptr);
}

TEST(AddressHandles, ARemovedHandleKeepsItsPathUntilManyOthersAreRemoved) {
  constexpr uint32_t kBefore = AddressHandles::kRemovedBeforeReuse;
  AddressHandles table(4 * kBefore);
  roce::Path path;
  path.hop_limit = 77;
  uint32_t removed = 0;
  ASSERT_TRUE(table.Add(1, path, &removed));
  const roce::FrameTemplate frame = *table.Find(removed, 1);
  uint32_t other = removed;
  for (uint32_t i = 1; i < kBefore; ++i) {
    ASSERT_TRUE(table.Remove(other));
    ASSERT_TRUE(table.Add(1, {}, &other));
    ASSERT_NE(other, removed) << i;
    const roce::FrameTemplate* found = table.Find(removed, 1);
    ASSERT_TRUE(std::equal(frame.bytes(), frame.bytes() + frame.kCapacity, found->bytes())) << i;
  }
  ASSERT_TRUE(table.Remove(other));
  ASSERT_TRUE(table.Add(1, {}, &other));
  EXPECT_EQ(other, removed);
  EXPECT_EQ(table.size(), 1u);
}

}  // namespace
}  // namespace roci::dataplane
