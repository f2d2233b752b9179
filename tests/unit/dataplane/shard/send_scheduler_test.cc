// SendScheduler of queue pairs and of users.
#include "dataplane/shard/send_scheduler.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/unit/dataplane/shard/hundred_queue_pairs.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kTurn = SendScheduler::kTurnBytes;

class SendSchedulerTest : public testing::HundredQueuePairs {
 protected:
  // A share with queue pairs [first, end), all of which have something to send.
  TurnShare& AddShare(SendScheduler& scheduler, const void* user, size_t first, size_t end) {
    TurnShare& share = scheduler.Join(user);
    for (size_t i = first; i < end; ++i) {
      scheduler.Add(share);
      scheduler.Push(share, qp(i));
    }
    return share;
  }

  const int alice_ = 0, bob_ = 0;  // their addresses stand for users
};

TEST_F(SendSchedulerTest, QueuePairsTakeTurnsInOrder) {
  SendScheduler scheduler(Fairness::kQueuePair);
  TurnShare& share = AddShare(scheduler, &alice_, 0, 3);
  EXPECT_EQ(&scheduler.Join(&bob_), &share) << "there are no users";
  for (size_t i = 0; i < 9; ++i) {
    QueuePair* next = scheduler.Begin();
    ASSERT_EQ(next, &qp(i % 3));
    EXPECT_EQ(scheduler.Budget(*next), kTurn);
    scheduler.Push(share, *next);
    scheduler.End(kTurn);
  }
  for (size_t i = 0; i < 3; ++i) scheduler.Remove(share, qp(i));
  EXPECT_TRUE(scheduler.empty());
  while (scheduler.Begin() != nullptr) scheduler.End(0);
}

TEST_F(SendSchedulerTest, ExcessShortensTheNextTurn) {
  SendScheduler scheduler(Fairness::kQueuePair);
  TurnShare& share = AddShare(scheduler, nullptr, 0, 1);
  for (const uint32_t excess : {0u, 4095u, 1u, 0u}) {
    QueuePair* next = scheduler.Begin();
    ASSERT_EQ(next, &qp(0));
    const uint32_t budget = scheduler.Budget(*next);
    SendScheduler::NoteSent(*next, budget + excess, budget);
    scheduler.Push(share, *next);
    scheduler.End(budget + excess);
    scheduler.Begin();
    EXPECT_EQ(scheduler.Budget(*next), kTurn - excess);
    scheduler.Push(share, *next);
    scheduler.End(0);
  }
  scheduler.Begin();
  scheduler.End(0);
}

TEST_F(SendSchedulerTest, UsersGetTheSameWhateverTheNumberOfQueuePairs) {
  SendScheduler scheduler(Fairness::kUser);
  TurnShare& alice = AddShare(scheduler, &alice_, 0, 1);
  TurnShare& bob = AddShare(scheduler, &bob_, 1, 100);
  EXPECT_EQ(&scheduler.Join(&bob_), &bob);
  uint64_t bytes[2] = {};
  for (uint32_t i = 0; i < 1000; ++i) {
    QueuePair* next = scheduler.Begin();
    ASSERT_NE(next, nullptr);
    const bool is_alice = next == &qp(0);
    // Alice sends short packets.
    const uint32_t sent = is_alice ? kTurn / 5 : kTurn;
    bytes[is_alice ? 0 : 1] += sent;
    scheduler.Push(is_alice ? alice : bob, *next);
    scheduler.End(sent);
  }
  EXPECT_NEAR(static_cast<double>(bytes[0]), static_cast<double>(bytes[1]), kTurn);
  for (size_t i = 0; i < 100; ++i) scheduler.Remove(i == 0 ? alice : bob, qp(i));
}

TEST_F(SendSchedulerTest, AUserWhoWaitedCatchesUpOnABoundedAmount) {
  SendScheduler scheduler(Fairness::kUser);
  TurnShare& bob = AddShare(scheduler, &bob_, 1, 10);
  TurnShare& alice = scheduler.Join(&alice_);
  scheduler.Add(alice);
  for (uint32_t i = 0; i < 1000; ++i) {
    QueuePair* next = scheduler.Begin();
    scheduler.Push(bob, *next);
    scheduler.End(kTurn);
  }
  scheduler.Push(alice, qp(0));
  ASSERT_EQ(scheduler.Begin(), &qp(0));
  // It sends the credit of the user at once.
  const uint32_t budget = scheduler.Budget(qp(0));
  EXPECT_GT(budget, kTurn);
  EXPECT_LE(budget, kTurn + SendScheduler::kMostOwedBytes);
  scheduler.Push(alice, qp(0));
  scheduler.End(budget);
  QueuePair* next = scheduler.Begin();
  EXPECT_NE(next, &qp(0));
  EXPECT_EQ(scheduler.Budget(*next), kTurn) << "he is owed nothing";
  scheduler.Push(bob, *next);
  scheduler.End(kTurn);
  for (size_t i = 0; i < 10; ++i) scheduler.Remove(i == 0 ? alice : bob, qp(i));
}

TEST_F(SendSchedulerTest, AQueuePairThatIsHeldKeepsItsTurn) {
  SendScheduler scheduler(Fairness::kQueuePair);
  TurnShare& share = AddShare(scheduler, nullptr, 0, 3);
  ASSERT_EQ(scheduler.Begin(), &qp(0));
  SendScheduler::Postpone(qp(0));
  scheduler.End(0);
  EXPECT_EQ(scheduler.size(), 2u);
  scheduler.Push(share, qp(0));
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(scheduler.Begin(), &qp(i));
    scheduler.Push(share, qp(i));
    scheduler.End(kTurn);
  }
  ASSERT_EQ(scheduler.Begin(), &qp(0));
  scheduler.End(0);
  for (size_t i = 1; i < 3; ++i) scheduler.Remove(share, qp(i));
}

TEST_F(SendSchedulerTest, OneOtherContendsWithFairnessByUserOnly) {
  SendScheduler scheduler(Fairness::kQueuePair);
  TurnShare& share = AddShare(scheduler, nullptr, 0, 2);
  EXPECT_FALSE(scheduler.IsContended(qp(0)));
  scheduler.Add(share);
  scheduler.Push(share, qp(2));
  EXPECT_TRUE(scheduler.IsContended(qp(0)));
  EXPECT_TRUE(scheduler.IsContended(qp(3)));
  for (size_t i = 0; i < 3; ++i) scheduler.Remove(share, qp(i));
}

TEST_F(SendSchedulerTest, OnlyQueuePairsWithSomethingToSendContend) {
  SendScheduler scheduler(Fairness::kUser);
  TurnShare& share = AddShare(scheduler, nullptr, 0, 1);
  scheduler.Add(share);
  scheduler.PushPolled(share, qp(1));
  EXPECT_EQ(scheduler.size(), 2u);
  EXPECT_FALSE(scheduler.IsContended(qp(0)));
  EXPECT_TRUE(scheduler.IsContended(qp(1)));
  scheduler.Push(share, qp(1));
  EXPECT_EQ(scheduler.size(), 2u);
  EXPECT_TRUE(scheduler.IsContended(qp(0)));
  scheduler.Remove(share, qp(1));
  EXPECT_FALSE(scheduler.IsContended(qp(0)));
  scheduler.Begin();
  scheduler.End(0);
  EXPECT_TRUE(scheduler.empty());
}

TEST_F(SendSchedulerTest, AUserLeavesWhileOthersWait) {
  SendScheduler scheduler(Fairness::kUser);
  TurnShare& alice = AddShare(scheduler, &alice_, 0, 10);
  TurnShare& bob = AddShare(scheduler, &bob_, 10, 20);
  for (size_t i = 0; i < 10; ++i) scheduler.Remove(alice, qp(i));
  scheduler.Leave(alice);
  for (size_t i = 10; i < 20; ++i) {
    ASSERT_EQ(scheduler.Begin(), &qp(i));
    scheduler.End(kTurn);
  }
  EXPECT_TRUE(scheduler.empty());
  scheduler.Leave(bob);
  EXPECT_EQ(scheduler.Begin(), nullptr);
}

TEST_F(SendSchedulerTest, RecheckLooksAtEveryQueuePairOnce) {
  SendScheduler scheduler(Fairness::kUser);
  TurnShare& alice = AddShare(scheduler, &alice_, 0, 10);
  TurnShare& bob = AddShare(scheduler, &bob_, 10, 100);
  std::vector<int> seen(100);
  scheduler.Recheck([&](QueuePair& each) {
    for (size_t i = 0; i < 100; ++i) {
      if (&qp(i) != &each) continue;
      ++seen[i];
      if (i >= 50) scheduler.Push(bob, each);
    }
  });
  EXPECT_EQ(seen, std::vector<int>(100, 1));
  EXPECT_EQ(scheduler.size(), 50u);
  // Alice's share is empty now, and comes back.
  scheduler.Push(alice, qp(0));
  bool found = false;
  for (uint32_t i = 0; i < 51; ++i) {
    found |= scheduler.Begin() == &qp(0);
    scheduler.End(kTurn);
  }
  EXPECT_TRUE(found);
  EXPECT_TRUE(scheduler.empty());
}

}  // namespace
}  // namespace roci::dataplane
