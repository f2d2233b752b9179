// The list of queue pairs with work: order, removal, growth.
#include "dataplane/shard/active_list.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"

namespace roci::dataplane {
namespace {

class ActiveListTest : public ::testing::Test {
 protected:
  ActiveListTest()
      : wire_(testing::TestDataplane()),
        node_(testing::TestDataplane(), &wire_, {}),
        cq_(node_.client(), 16) {
    QueuePairConfig config;
    config.send_cq = config.recv_cq = cq_.cq();
    for (int i = 0; i < 100; ++i) {
      apps_.push_back(std::make_unique<testing::AppQp>(node_.client(), config));
    }
  }
  QueuePair& qp(size_t i) { return apps_[i]->qp(); }

  Wire wire_;
  testing::Node node_;
  testing::AppCq cq_;
  std::vector<std::unique_ptr<testing::AppQp>> apps_;
};

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
