// The list of queue pairs with work: order, removal, growth.
#include "dataplane/shard/active_list.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/unit/dataplane/shard/hundred_queue_pairs.h"

namespace roci::dataplane {
namespace {

using ActiveListTest = testing::HundredQueuePairs;

TEST_F(ActiveListTest, KeepsOrderAndSkipsRemovedQueuePairs) {
  ActiveList list;
  list.Push(qp(0));
  list.Push(qp(1));
  list.Push(qp(1));
  list.Push(qp(2));
  EXPECT_EQ(list.size(), 3u);
  list.Remove(qp(1));
  EXPECT_EQ(list.Peek(0), &qp(0));
  EXPECT_EQ(list.Peek(1), nullptr);
  EXPECT_EQ(list.Pop(), &qp(0));
  EXPECT_EQ(list.Pop(), nullptr);
  EXPECT_EQ(list.Pop(), &qp(2));
  EXPECT_TRUE(list.empty());
}

TEST_F(ActiveListTest, GrowsAndCompacts) {
  ActiveList list;
  for (size_t i = 0; i < 60; ++i) list.Push(qp(i));
  list.Reserve(100);
  for (size_t i = 60; i < 100; ++i) list.Push(qp(i));
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(list.Pop(), &qp(i));
  // Removed ones leave holes; the ring never overflows because of them.
  for (int round = 0; round < 50; ++round) {
    for (size_t i = 0; i < 100; ++i) list.Push(qp(i));
    for (size_t i = 0; i < 100; i += 2) list.Remove(qp(i));
    for (size_t i = 0; i < 100; i += 2) list.Push(qp(i));
    uint32_t found = 0;
    while (!list.empty()) found += list.Pop() != nullptr ? 1 : 0;
    ASSERT_EQ(found, 100u);
  }
}

}  // namespace
}  // namespace roci::dataplane
