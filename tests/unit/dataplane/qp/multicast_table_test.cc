#include "dataplane/qp/multicast_table.h"

#include <gtest/gtest.h>

#include <array>

#include "tests/on_shard.h"

namespace roci::dataplane {
namespace {

const OnShard& kShard = OnShardInTests::Token();

roce::Gid Group(uint8_t number) {
  roce::Gid gid;
  gid.bytes[0] = 0xFF;
  gid.bytes[15] = number;
  return gid;
}

class MulticastTableTest : public ::testing::Test {
 protected:
  // The table never dereferences them.
  QueuePair& Qp(size_t i) { return reinterpret_cast<QueuePair&>(places_[i]); }
  MulticastTable table_;

 private:
  std::array<uint64_t, 4> places_{};
};

TEST_F(MulticastTableTest, MembersOfAGroup) {
  EXPECT_TRUE(table_.empty());
  EXPECT_TRUE(table_.Add(kShard, Group(1), Qp(0)));
  EXPECT_FALSE(table_.Add(kShard, Group(1), Qp(0))) << "a member already";
  EXPECT_TRUE(table_.Add(kShard, Group(1), Qp(1)));
  EXPECT_TRUE(table_.Add(kShard, Group(2), Qp(1)));
  EXPECT_EQ(table_.Find(kShard, Group(1)).size(), 2u);
  EXPECT_EQ(table_.Find(kShard, Group(2)).size(), 1u);
  EXPECT_TRUE(table_.Find(kShard, Group(3)).empty());
  EXPECT_FALSE(table_.Remove(kShard, Group(2), Qp(0)));
  EXPECT_TRUE(table_.Remove(kShard, Group(1), Qp(0)));
  EXPECT_FALSE(table_.Remove(kShard, Group(1), Qp(0)));
  ASSERT_EQ(table_.Find(kShard, Group(1)).size(), 1u);
  EXPECT_EQ(table_.Find(kShard, Group(1))[0], &Qp(1));
}

TEST_F(MulticastTableTest, LeavingEverything) {
  for (uint8_t group = 0; group < 10; ++group) {
    EXPECT_TRUE(table_.Add(kShard, Group(group), Qp(0)));
    if (group % 2 == 0) {
      EXPECT_TRUE(table_.Add(kShard, Group(group), Qp(1)));
    }
  }
  table_.RemoveAll(kShard, Qp(0));
  for (uint8_t group = 0; group < 10; ++group) {
    EXPECT_EQ(table_.Find(kShard, Group(group)).size(), group % 2 == 0 ? 1u : 0u);
  }
  table_.RemoveAll(kShard, Qp(1));
  EXPECT_TRUE(table_.empty());
}

}  // namespace
}  // namespace roci::dataplane
