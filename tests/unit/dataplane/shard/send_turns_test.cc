// SendTurns of queue pairs and of users.
#include "dataplane/shard/send_turns.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/unit/dataplane/shard/hundred_queue_pairs.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kTurn = SendTurns::kTurnBytes;

class SendTurnsTest : public testing::HundredQueuePairs {
 protected:
  // A share with queue pairs [first, end), all of which have something to send.
  TurnShare& AddShare(SendTurns& turns, const void* user, size_t first, size_t end) {
    TurnShare& share = turns.Join(user);
    for (size_t i = first; i < end; ++i) {
      turns.Add(share);
      turns.Push(share, qp(i));
    }
    return share;
  }

  const int alice_ = 0, bob_ = 0;  // their addresses stand for users
};

TEST_F(SendTurnsTest, QueuePairsTakeTurnsInOrder) {
  SendTurns turns(Fairness::kQueuePair);
  TurnShare& share = AddShare(turns, &alice_, 0, 3);
  EXPECT_EQ(&turns.Join(&bob_), &share) << "there are no users";
  for (size_t i = 0; i < 9; ++i) {
    QueuePair* next = turns.Begin();
    ASSERT_EQ(next, &qp(i % 3));
    EXPECT_EQ(turns.Budget(*next), kTurn);
    turns.Push(share, *next);
    turns.End(kTurn);
  }
  for (size_t i = 0; i < 3; ++i) turns.Remove(share, qp(i));
  EXPECT_TRUE(turns.empty());
  while (turns.Begin() != nullptr) turns.End(0);
}

TEST_F(SendTurnsTest, ExcessShortensTheNextTurn) {
  SendTurns turns(Fairness::kQueuePair);
  TurnShare& share = AddShare(turns, nullptr, 0, 1);
  for (const uint32_t excess : {0u, 4095u, 1u, 0u}) {
    QueuePair* next = turns.Begin();
    ASSERT_EQ(next, &qp(0));
    const uint32_t budget = turns.Budget(*next);
    SendTurns::NoteSent(*next, budget + excess, budget);
    turns.Push(share, *next);
    turns.End(budget + excess);
    turns.Begin();
    EXPECT_EQ(turns.Budget(*next), kTurn - excess);
    turns.Push(share, *next);
    turns.End(0);
  }
  turns.Begin();
  turns.End(0);
}

TEST_F(SendTurnsTest, UsersGetTheSameWhateverTheNumberOfQueuePairs) {
  SendTurns turns(Fairness::kUser);
  TurnShare& alice = AddShare(turns, &alice_, 0, 1);
  TurnShare& bob = AddShare(turns, &bob_, 1, 100);
  EXPECT_EQ(&turns.Join(&bob_), &bob);
  uint64_t bytes[2] = {};
  for (uint32_t i = 0; i < 1000; ++i) {
    QueuePair* next = turns.Begin();
    ASSERT_NE(next, nullptr);
    const bool is_alice = next == &qp(0);
    // Alice sends short packets.
    const uint32_t sent = is_alice ? kTurn / 5 : kTurn;
    bytes[is_alice ? 0 : 1] += sent;
    turns.Push(is_alice ? alice : bob, *next);
    turns.End(sent);
  }
  EXPECT_NEAR(static_cast<double>(bytes[0]), static_cast<double>(bytes[1]), kTurn);
  for (size_t i = 0; i < 100; ++i) turns.Remove(i == 0 ? alice : bob, qp(i));
}

TEST_F(SendTurnsTest, AUserWhoWaitedCatchesUpOnABoundedAmount) {
  SendTurns turns(Fairness::kUser);
  TurnShare& bob = AddShare(turns, &bob_, 1, 10);
  TurnShare& alice = turns.Join(&alice_);
  turns.Add(alice);
  for (uint32_t i = 0; i < 1000; ++i) {
    QueuePair* next = turns.Begin();
    turns.Push(bob, *next);
    turns.End(kTurn);
  }
  turns.Push(alice, qp(0));
  ASSERT_EQ(turns.Begin(), &qp(0));
  // It sends the credit of the user at once.
  const uint32_t budget = turns.Budget(qp(0));
  EXPECT_GT(budget, kTurn);
  EXPECT_LE(budget, kTurn + SendTurns::kMostOwedBytes);
  turns.Push(alice, qp(0));
  turns.End(budget);
  QueuePair* next = turns.Begin();
  EXPECT_NE(next, &qp(0));
  EXPECT_EQ(turns.Budget(*next), kTurn) << "he is owed nothing";
  turns.Push(bob, *next);
  turns.End(kTurn);
  for (size_t i = 0; i < 10; ++i) turns.Remove(i == 0 ? alice : bob, qp(i));
}

TEST_F(SendTurnsTest, AQueuePairThatIsHeldKeepsItsTurn) {
  SendTurns turns(Fairness::kQueuePair);
  TurnShare& share = AddShare(turns, nullptr, 0, 3);
  ASSERT_EQ(turns.Begin(), &qp(0));
  SendTurns::Postpone(qp(0));
  turns.End(0);
  EXPECT_EQ(turns.size(), 2u);
  turns.Push(share, qp(0));
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(turns.Begin(), &qp(i));
    turns.Push(share, qp(i));
    turns.End(kTurn);
  }
  ASSERT_EQ(turns.Begin(), &qp(0));
  turns.End(0);
  for (size_t i = 1; i < 3; ++i) turns.Remove(share, qp(i));
}

TEST_F(SendTurnsTest, OneOtherContendsWithFairnessByUserOnly) {
  SendTurns turns(Fairness::kQueuePair);
  TurnShare& share = AddShare(turns, nullptr, 0, 2);
  EXPECT_FALSE(turns.IsContended(qp(0)));
  turns.Add(share);
  turns.Push(share, qp(2));
  EXPECT_TRUE(turns.IsContended(qp(0)));
  EXPECT_TRUE(turns.IsContended(qp(3)));
  for (size_t i = 0; i < 3; ++i) turns.Remove(share, qp(i));
}

TEST_F(SendTurnsTest, OnlyQueuePairsWithSomethingToSendContend) {
  SendTurns turns(Fairness::kUser);
  TurnShare& share = AddShare(turns, nullptr, 0, 1);
  turns.Add(share);
  turns.PushPolled(share, qp(1));
  EXPECT_EQ(turns.size(), 2u);
  EXPECT_FALSE(turns.IsContended(qp(0)));
  EXPECT_TRUE(turns.IsContended(qp(1)));
  turns.Push(share, qp(1));
  EXPECT_EQ(turns.size(), 2u);
  EXPECT_TRUE(turns.IsContended(qp(0)));
  turns.Remove(share, qp(1));
  EXPECT_FALSE(turns.IsContended(qp(0)));
  turns.Begin();
  turns.End(0);
  EXPECT_TRUE(turns.empty());
}

TEST_F(SendTurnsTest, AUserLeavesWhileOthersWait) {
  SendTurns turns(Fairness::kUser);
  TurnShare& alice = AddShare(turns, &alice_, 0, 10);
  TurnShare& bob = AddShare(turns, &bob_, 10, 20);
  for (size_t i = 0; i < 10; ++i) turns.Remove(alice, qp(i));
  turns.Leave(alice);
  for (size_t i = 10; i < 20; ++i) {
    ASSERT_EQ(turns.Begin(), &qp(i));
    turns.End(kTurn);
  }
  EXPECT_TRUE(turns.empty());
  turns.Leave(bob);
  EXPECT_EQ(turns.Begin(), nullptr);
}

TEST_F(SendTurnsTest, RecheckLooksAtEveryQueuePairOnce) {
  SendTurns turns(Fairness::kUser);
  TurnShare& alice = AddShare(turns, &alice_, 0, 10);
  TurnShare& bob = AddShare(turns, &bob_, 10, 100);
  std::vector<int> seen(100);
  turns.Recheck([&](QueuePair& each) {
    for (size_t i = 0; i < 100; ++i) {
      if (&qp(i) != &each) continue;
      ++seen[i];
      if (i >= 50) turns.Push(bob, each);
    }
  });
  EXPECT_EQ(seen, std::vector<int>(100, 1));
  EXPECT_EQ(turns.size(), 50u);
  // Alice's share is empty now, and comes back.
  turns.Push(alice, qp(0));
  bool found = false;
  for (uint32_t i = 0; i < 51; ++i) {
    found |= turns.Begin() == &qp(0);
    turns.End(kTurn);
  }
  EXPECT_TRUE(found);
  EXPECT_TRUE(turns.empty());
}

}  // namespace
}  // namespace roci::dataplane
