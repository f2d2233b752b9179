// Handle tables: ranges, limits, reuse of handles.
#include "control/session/handle_table.h"

#include <absl/status/status.h>
#include <gtest/gtest.h>

#include <cstdint>

namespace roci::control {
namespace {

TEST(HandleTableTest, OfARange) {
  HandleTable<int> table(100);
  table.UseRange(0x1000001, 2);
  EXPECT_EQ(*table.Add(1), 0x1000001u);
  EXPECT_EQ(*table.Add(2), 0x1000002u);
  EXPECT_FALSE(table.Add(3).ok());
  table.Remove(0x1000001);
  EXPECT_EQ(*table.Add(3), 0x1000001u);
}

TEST(HandleTableTest, ARangeFromZero) {
  HandleTable<int> table(100);
  table.UseRange(0, 2);
  EXPECT_EQ(*table.Add(1), 0u);
  EXPECT_EQ(*table.Next(), 1u);
  EXPECT_EQ(*table.Next(), 1u) << "Next gives none away";
  EXPECT_TRUE(table.AddAs(1, 2));
  EXPECT_FALSE(table.Next().ok());
  table.Remove(0);
  EXPECT_EQ(*table.Add(3), 0u);
}

TEST(HandleTableTest, BeginsSomewhereInItsRange) {
  HandleTable<int> whole(100);
  whole.StartBehind(0xABCDE);
  EXPECT_EQ(*whole.Add(1), 0xABCDFu);
  HandleTable<int> table(100);
  table.UseRange(0x1000001, 4);
  table.StartBehind(4 * 1000 + 2);
  for (const uint32_t handle : {0x1000003u, 0x1000004u, 0x1000001u, 0x1000002u}) {
    EXPECT_EQ(*table.Add(1), handle);
  }
  EXPECT_FALSE(table.Add(1).ok());
}

TEST(HandleTableTest, LimitAndReuse) {
  HandleTable<int> table(2);
  const uint32_t a = *table.Add(10);
  const uint32_t b = *table.Add(20);
  EXPECT_NE(a, b);
  EXPECT_TRUE(absl::IsResourceExhausted(table.Add(30).status()));
  table.Remove(a);
  EXPECT_EQ(table.Find(a), nullptr);
  const uint32_t c = *table.Add(30);
  EXPECT_NE(c, a) << "a stale handle must not find another object";
  EXPECT_EQ(*table.Find(b), 20);
  EXPECT_EQ(*table.Find(c), 30);
  EXPECT_EQ(table.Find(0), nullptr);
  EXPECT_FALSE(table.AddAs(c, 40));
}

}  // namespace
}  // namespace roci::control
