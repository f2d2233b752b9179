#include "dataplane/qp/flow_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/on_shard.h"

namespace roci::dataplane {
namespace {

const OnShard& kShard = OnShardInTests::Token();

class FlowTableTest : public ::testing::Test {
 protected:
  FlowRule& Make(uint16_t priority, uint8_t mac_mask, uint8_t mac) {
    rules_.push_back(std::make_unique<FlowRule>());
    rules_.back()->priority = priority;
    rules_.back()->mask.dst_mac.bytes[5] = mac_mask;
    rules_.back()->value.dst_mac.bytes[5] = mac & mac_mask;
    return *rules_.back();
  }
  FlowRule& MakeOf(FlowKind kind) {
    FlowRule& rule = Make(0, 0, 0);
    rule.kind = kind;
    return rule;
  }
  static roce::FlowKey Key(uint8_t mac, bool group = false) {
    roce::FlowKey key{};
    key.dst_mac.bytes[0] = group ? 1 : 0;
    key.dst_mac.bytes[5] = mac;
    return key;
  }
  std::vector<const FlowRule*> Match(uint8_t mac, bool group = false) {
    std::vector<const FlowRule*> out;
    trapped_ =
        table_.Match(kShard, Key(mac, group), [&](const FlowRule& rule) { out.push_back(&rule); });
    return out;
  }
  using Rules = std::vector<const FlowRule*>;

  FlowTable table_;
  bool trapped_ = false;
  std::vector<std::unique_ptr<FlowRule>> rules_;
};

TEST_F(FlowTableTest, PriorityThenAge) {
  EXPECT_TRUE(table_.empty(kShard));
  FlowRule& low = Make(9, 0xFF, 1);
  FlowRule& any = Make(3, 0, 0);
  FlowRule& high = Make(0, 0x0F, 1);
  for (FlowRule* rule : {&low, &any, &high}) EXPECT_TRUE(table_.Add(kShard, *rule));
  EXPECT_EQ(Match(0x31), Rules{&high});
  EXPECT_TRUE(trapped_);
  EXPECT_EQ(Match(0x32), Rules{&any});
  table_.Remove(kShard, any);
  EXPECT_EQ(Match(0x32), Rules{});
  EXPECT_FALSE(trapped_);
  table_.Remove(kShard, high);
  EXPECT_EQ(Match(1), Rules{&low});
  table_.Remove(kShard, low);
  EXPECT_TRUE(table_.empty(kShard));
}

TEST_F(FlowTableTest, EqualRulesAllGetTheFrame) {
  FlowRule& a = Make(1, 0xFF, 5);
  FlowRule& b = Make(1, 0xFF, 5);
  FlowRule& c = Make(2, 0xFF, 5);
  for (FlowRule* rule : {&a, &b, &c}) EXPECT_TRUE(table_.Add(kShard, *rule));
  EXPECT_EQ(Match(5), (Rules{&a, &b}));
  a.passes_on = b.passes_on = true;
  EXPECT_EQ(Match(5), (Rules{&a, &b, &c}));
  EXPECT_TRUE(trapped_);
  c.passes_on = true;
  EXPECT_EQ(Match(5).size(), 3u);
  EXPECT_FALSE(trapped_);
}

TEST_F(FlowTableTest, DefaultRulesGetTheRest) {
  FlowRule& all = MakeOf(FlowKind::kAllDefault);
  FlowRule& multicast = MakeOf(FlowKind::kMulticastDefault);
  FlowRule& sniffer = MakeOf(FlowKind::kSniffer);
  FlowRule& rule = Make(0, 0xFF, 5);
  for (FlowRule* each : {&all, &multicast, &sniffer, &rule}) EXPECT_TRUE(table_.Add(kShard, *each));
  EXPECT_EQ(Match(5), Rules{&rule});
  EXPECT_EQ(Match(6), Rules{&all});
  EXPECT_FALSE(trapped_) << "the device's own handling goes on";
  EXPECT_EQ(Match(6, true), Rules{&multicast});
  table_.Remove(kShard, multicast);
  EXPECT_EQ(Match(6, true), Rules{&all});
  EXPECT_EQ(table_.sniffers(kShard).size(), 1u);
  table_.Remove(kShard, sniffer);
  EXPECT_TRUE(table_.sniffers(kShard).empty());
}

TEST_F(FlowTableTest, TheNumberOfClassesIsBounded) {
  for (uint16_t priority = 0; priority < FlowTable::kMaxClasses; ++priority) {
    EXPECT_TRUE(table_.Add(kShard, Make(priority, 0xFF, 1)));
    EXPECT_TRUE(table_.Add(kShard, Make(priority, 0xFF, 2))) << "the same class";
  }
  EXPECT_FALSE(table_.Add(kShard, Make(FlowTable::kMaxClasses, 0xFF, 1)));
  table_.Remove(kShard, *rules_[0]);
  table_.Remove(kShard, *rules_[1]);
  EXPECT_TRUE(table_.Add(kShard, Make(FlowTable::kMaxClasses, 0xFF, 1)));
}

}  // namespace
}  // namespace roci::dataplane
