// Owned sets: growth, and taking single objects out.
#include "dataplane/base/owned_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

namespace roci::dataplane {
namespace {

TEST(OwnedSet, HandsOverTheObjectThatIsAskedFor) {
  OwnedSet<int> set;
  EXPECT_TRUE(set.empty());
  for (int i = 0; i < 20; ++i) {
    set.MakeRoom();
    set.Add(std::make_unique<int>(i));
  }
  for (const int wanted : {3, 19, 0, 7}) {
    const auto found =
        std::find_if(set.begin(), set.end(), [&](const auto& owned) { return *owned == wanted; });
    ASSERT_NE(found, set.end());
    EXPECT_EQ(*set.Take(**found), wanted);
  }
  std::set<int> left;
  for (const auto& owned : set) left.insert(*owned);
  EXPECT_EQ(left.size(), 16u);
  EXPECT_FALSE(left.contains(7));
}

}  // namespace
}  // namespace roci::dataplane
