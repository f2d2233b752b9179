#include "roce/reorder_window.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <random>
#include <set>

namespace roci::roce {
namespace {

using Arrival = ReorderWindow::Arrival;

constexpr Psn kDue{0xFFFFFE};  // the numbers wrap

TEST(ReorderWindow, KnowsGapsAndWhenTheyBegan) {
  ReorderWindow window;
  EXPECT_TRUE(window.is_empty());
  EXPECT_EQ(window.Note(kDue, kDue + 2, 1, 100), Arrival::kNew);
  EXPECT_EQ(window.Note(kDue, kDue + 4, 1, 200), Arrival::kNew);
  EXPECT_EQ(window.Note(kDue, kDue + 4, 1, 300), Arrival::kDuplicate);
  EXPECT_FALSE(window.HasArrived(kDue));
  EXPECT_TRUE(window.HasArrived(kDue + 2));
  EXPECT_FALSE(window.HasArrived(kDue + 3));
  EXPECT_FALSE(window.HasArrived(kDue + 5));
  ASSERT_NE(window.Missing(), nullptr);
  EXPECT_EQ(window.Missing()->first, kDue);
  EXPECT_EQ(window.Missing()->packets, 2u);
  EXPECT_EQ(window.Missing()->since, 100u);
  window.Advance(kDue + 1);
  ASSERT_NE(window.Missing(), nullptr);
  EXPECT_EQ(window.Missing()->since, 100u);
  window.Advance(kDue + 2);
  EXPECT_EQ(window.Missing(), nullptr) << "it has arrived";
  window.Advance(kDue + 3);
  ASSERT_NE(window.Missing(), nullptr);
  EXPECT_EQ(window.Missing()->since, 200u);
  EXPECT_EQ(window.Note(kDue + 3, kDue + 3, 1, 400), Arrival::kNew);
  window.Advance(kDue + 5);
  EXPECT_TRUE(window.is_empty());
}

MissingEth Missing(std::initializer_list<uint32_t> distances) {
  MissingEth missing;
  for (const uint32_t distance : distances) missing.Add(distance);
  return missing;
}

TEST(ReorderWindow, AsksForAGapWhenItIsOldAndAgainLessAndLessOften) {
  constexpr uint64_t kWaitNs = 50;
  constexpr uint64_t kRepeatNs = 100;
  ReorderWindow window;
  EXPECT_EQ(window.NextAsk(kWaitNs), kNever);
  window.Note(kDue, kDue + 2, 1, 1000);
  window.Note(kDue, kDue + 4, 1, 1020);
  EXPECT_EQ(window.NextAsk(kWaitNs), 1050u);
  window.Ask(1049, kWaitNs, kRepeatNs);
  EXPECT_FALSE(window.HasWanted());
  window.Ask(1050, kWaitNs, kRepeatNs);
  EXPECT_TRUE(window.HasWanted());
  EXPECT_EQ(window.TakeWanted(), Missing({0, 1}));
  EXPECT_FALSE(window.HasWanted());
  EXPECT_EQ(window.NextAsk(kWaitNs), 1070u);
  window.Ask(1070, kWaitNs, kRepeatNs);
  window.Advance(kDue + 1);
  EXPECT_EQ(window.TakeWanted(), Missing({2})) << "it counts from the next PSN";
  EXPECT_EQ(window.NextAsk(kWaitNs), 1150u);
  window.Ask(1150, kWaitNs, kRepeatNs);
  EXPECT_EQ(window.TakeWanted(), Missing({0}));
  EXPECT_EQ(window.Missing()->asks, 2u);
  window.Advance(kDue + 3);
  window.Ask(1170, kWaitNs, kRepeatNs);
  EXPECT_EQ(window.NextAsk(kWaitNs), 1270u);
  window.Ask(1270, kWaitNs, kRepeatNs);
  EXPECT_EQ(window.NextAsk(kWaitNs), 1470u) << "twice as long";
}

TEST(ReorderWindow, AsksForBothPartsOfAGapThatIsFilledInTheMiddle) {
  ReorderWindow window;
  window.Note(kDue, kDue + 5, 1, 0);
  window.Ask(10, 10, 10);
  window.TakeWanted();
  window.Note(kDue, kDue + 2, 1, 12);
  EXPECT_EQ(window.NextAsk(10), 20u);
  window.Ask(20, 10, 10);
  EXPECT_EQ(window.TakeWanted(), Missing({0, 1, 3, 4}));
}

TEST(ReorderWindow, ExpectsWhatAnAcknowledgementCovers) {
  ReorderWindow window;
  window.Note(kDue, kDue + 1, 1, 0);
  window.Expect(kDue, kDue + 4, 100);
  window.Expect(kDue, kDue + 3, 200);
  EXPECT_FALSE(window.HasArrived(kDue + 2));
  window.Ask(100, 100, 100);
  EXPECT_EQ(window.TakeWanted(), Missing({0}));
  window.Ask(200, 100, 100);
  EXPECT_EQ(window.TakeWanted(), Missing({0, 2, 3}));
  EXPECT_EQ(window.Note(kDue, kDue + 3, 1, 300), Arrival::kNew);
  EXPECT_EQ(window.Note(kDue, kDue + 3, 1, 300), Arrival::kDuplicate);
  window.Expect(kDue, kDue + 10 * ReorderWindow::kPackets, 400);
  window.Advance(kDue + ReorderWindow::kPackets);
  EXPECT_TRUE(window.is_empty()) << "in part only";
}

TEST(ReorderWindow, RefusesWhatItHasNoRoomFor) {
  ReorderWindow window;
  EXPECT_EQ(window.Note(kDue, kDue + ReorderWindow::kPackets, 1, 0), Arrival::kNoRoom);
  EXPECT_TRUE(window.is_empty());
  for (uint32_t i = 0; i < ReorderWindow::kMostGaps; ++i) {
    EXPECT_EQ(window.Note(kDue, kDue + 2 * i + 1, 1, 0), Arrival::kNew);
  }
  constexpr uint32_t kEnd = 2 * ReorderWindow::kMostGaps;
  EXPECT_EQ(window.Note(kDue, kDue + kEnd + 1, 1, 0), Arrival::kNoRoom) << "one gap more";
  EXPECT_EQ(window.Note(kDue, kDue + kEnd, 1, 0), Arrival::kNew) << "no gap more";
}

TEST(ReorderWindow, TakesAReadAsAsManyPsnsAsItHasResponses) {
  ReorderWindow window;
  EXPECT_EQ(window.Note(kDue, kDue + 1, 1000, 0), Arrival::kNew);
  EXPECT_TRUE(window.HasArrived(kDue + 1000));
  EXPECT_FALSE(window.HasArrived(kDue + 1001));
  EXPECT_EQ(window.Note(kDue, kDue, 2, 0), Arrival::kNoRoom) << "contradicts what has arrived";
  EXPECT_EQ(window.Note(kDue, kDue, 1, 0), Arrival::kNew);
  window.Advance(kDue + 1);
  EXPECT_TRUE(window.HasArrived(kDue + 1));
}

// Against a plain set of numbers.
TEST(ReorderWindow, AgreesWithASetInRandomOrders) {
  std::mt19937 rng(7);
  for (int run = 0; run < 200; ++run) {
    ReorderWindow window;
    std::set<uint32_t> arrived;
    uint32_t due = 0;
    for (int step = 0; step < 400; ++step) {
      const uint32_t at = due + static_cast<uint32_t>(rng() % 40);
      const Arrival arrival = window.Note(kDue + due, kDue + at, 1, 0);
      if (arrival == Arrival::kNoRoom) continue;
      ASSERT_EQ(arrival == Arrival::kNew, arrived.insert(at).second) << at;
      while (arrived.count(due) != 0) window.Advance(kDue + ++due);
      for (uint32_t i = due; i < due + 45; ++i) {
        ASSERT_EQ(window.HasArrived(kDue + i), arrived.count(i) != 0) << i;
      }
      ASSERT_EQ(window.is_empty(), arrived.empty() || *arrived.rbegin() < due);
    }
  }
}

}  // namespace
}  // namespace roci::roce
