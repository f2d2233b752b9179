#include "dataplane/base/timer_wheel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <vector>

namespace roci::dataplane {
namespace {

constexpr uint64_t kTick = TimerWheel::kTickNs;
constexpr uint32_t kAll = ~0u;

struct Fixture {
  uint64_t now = 1'000'000'007;
  TimerWheel wheel{now};
  std::vector<TimerNode*> expired;
  uint32_t Advance(uint64_t to, uint32_t budget = kAll) {
    now = to;
    return wheel.Advance(now, budget, [&](TimerNode& node) { expired.push_back(&node); });
  }
};

TEST(TimerWheel, ExpiresNotBeforeAndAtMostTwoTicksAfter) {
  for (const uint64_t delay : {uint64_t{0}, uint64_t{1}, kTick, 10 * kTick + 5, 5000 * kTick}) {
    Fixture f;
    TimerNode node;
    const uint64_t expiry = f.now + delay;
    f.wheel.Set(node, expiry);
    if (delay > 2 * kTick) {
      f.Advance(expiry - kTick);
      EXPECT_TRUE(f.expired.empty()) << delay;
    }
    f.Advance(expiry + 2 * kTick);
    EXPECT_EQ(f.expired.size(), 1u) << delay;
    EXPECT_FALSE(node.armed());
    EXPECT_EQ(f.wheel.size(), 0u);
  }
}

TEST(TimerWheel, ATimerBeyondTheHorizonExpiresEarly) {
  Fixture f;
  TimerNode node;
  f.wheel.Set(node, f.now + uint64_t{100} * TimerWheel::kSlots * kTick);
  f.Advance(f.now + (TimerWheel::kSlots + 1) * kTick);
  EXPECT_EQ(f.expired.size(), 1u);
}

TEST(TimerWheel, MovesAndCancels) {
  Fixture f;
  TimerNode a;
  TimerNode b;
  TimerNode c;
  f.wheel.Set(a, f.now + 10 * kTick);
  f.wheel.Set(b, f.now + 10 * kTick);
  f.wheel.Set(c, f.now + 10 * kTick);
  f.wheel.Set(b, f.now + 100 * kTick);
  f.wheel.Cancel(c);
  EXPECT_EQ(f.wheel.size(), 2u);
  f.Advance(f.now + 12 * kTick);
  ASSERT_EQ(f.expired.size(), 1u);
  EXPECT_EQ(f.expired[0], &a);
  f.Advance(f.now + 100 * kTick);
  EXPECT_EQ(f.expired.size(), 2u);
}

TEST(TimerWheel, ATimerSetAgainWhileExpiringWaitsForTheNextTick) {
  uint64_t now = 0;
  TimerWheel wheel(now);
  TimerNode node;
  wheel.Set(node, 0);
  uint32_t calls = 0;
  now = 5 * kTick;
  wheel.Advance(now, kAll, [&](TimerNode& again) {
    ++calls;
    wheel.Set(again, 0);
  });
  // One expiry per tick, no endless loop within one.
  EXPECT_EQ(calls, 5u);
  EXPECT_TRUE(node.armed());
  wheel.Cancel(node);
}

TEST(TimerWheel, BudgetLeavesTheRestForTheNextCall) {
  Fixture f;
  std::vector<TimerNode> nodes(10);
  for (TimerNode& node : nodes) f.wheel.Set(node, f.now + kTick);
  EXPECT_EQ(f.Advance(f.now + 3 * kTick, 4), 4u);
  EXPECT_EQ(f.Advance(f.now, 4), 4u);
  EXPECT_EQ(f.Advance(f.now, 4), 2u);
  EXPECT_EQ(f.Advance(f.now, 4), 0u);
}

TEST(TimerWheel, NextExpiryIsNeverLate) {
  Fixture f;
  EXPECT_EQ(f.wheel.NextExpiry(), TimerNode::kNever);
  TimerNode node;
  f.wheel.Set(node, f.now + 777 * kTick);
  const uint64_t next = f.wheel.NextExpiry();
  EXPECT_GE(next, f.now + 776 * kTick);
  EXPECT_LE(next, f.now + 779 * kTick);
  f.Advance(next);
  EXPECT_EQ(f.expired.size(), 1u);
}

// Compared with a sorted map, while timers are set, moved and cancelled: each expires in its
// window.
TEST(TimerWheel, SkipsTimesThatNobodyWaitsFor) {
  Fixture f;
  TimerNode over, later, due, behind;
  const uint64_t begin = f.now;
  const auto at = [&](uint64_t ticks) { return begin + ticks * kTick; };
  f.wheel.Set(over, at(2));
  f.wheel.Set(later, at(2));
  f.wheel.Set(due, at(4));
  f.wheel.Set(behind, at(9));
  const auto time_of = [&](TimerNode& node) {
    if (&node == &over) return TimerNode::kNever;
    return &node == &later ? at(7) : &node == &due ? at(4) : TimerNode::kNever;
  };
  f.wheel.SkipEarly(time_of);
  EXPECT_FALSE(over.armed());
  EXPECT_TRUE(behind.armed()) << "it is not asked before its time";
  EXPECT_EQ(f.wheel.NextExpiry(), due.expiry_ns);
  f.Advance(at(6));
  EXPECT_EQ(f.expired, std::vector{&due});
  f.Advance(at(8));
  EXPECT_EQ(f.expired, (std::vector{&due, &later}));
  f.wheel.SkipEarly(time_of);
  EXPECT_EQ(f.wheel.size(), 0u);
  EXPECT_EQ(f.wheel.NextExpiry(), TimerNode::kNever);
}

TEST(TimerWheel, ATimeBeyondTheHorizonIsNotSkipped) {
  Fixture f;
  TimerNode node;
  const uint64_t far = f.now + uint64_t{100} * TimerWheel::kSlots * kTick;
  f.wheel.Set(node, far);
  f.wheel.SkipEarly([&](TimerNode&) { return far; });
  EXPECT_TRUE(node.armed());
}

TEST(TimerWheel, AgreesWithASortedMap) {
  const uint32_t seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937_64 random(seed);
  Fixture f;
  std::vector<TimerNode> nodes(200);
  std::map<TimerNode*, uint64_t> model;
  for (int step = 0; step < 20000; ++step) {
    TimerNode& node = nodes[random() % nodes.size()];
    switch (random() % 4) {
      case 0:
      case 1: {
        const uint64_t expiry = f.now + random() % (8000 * kTick);
        f.wheel.Set(node, expiry);
        model[&node] = expiry;
        break;
      }
      case 2:
        f.wheel.Cancel(node);
        model.erase(&node);
        break;
      case 3: {
        f.expired.clear();
        f.Advance(f.now + random() % (300 * kTick));
        for (TimerNode* expired : f.expired) {
          ASSERT_TRUE(model.contains(expired));
          ASSERT_LE(model[expired], f.now);
          model.erase(expired);
        }
        for (const auto& [left, expiry] : model) ASSERT_GT(expiry + 2 * kTick, f.now);
        break;
      }
    }
    ASSERT_EQ(f.wheel.size(), model.size());
  }
}

}  // namespace
}  // namespace roci::dataplane
