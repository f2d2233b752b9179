#include "roce/reorder_window.h"

#include <gtest/gtest.h>

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
