#include "dataplane/rings/trace.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <thread>
#include <vector>

namespace roci::dataplane {
namespace {

class TraceTest : public ::testing::Test {
 protected:
  explicit TraceTest(TraceSettings settings = {}) : settings_(std::move(settings)) {
    lane_.UseClock(&now_);
  }
  static constexpr uint32_t kRoom = TraceRing::kEntries - TraceRing::kReserved;

  std::vector<TraceRecord> Taken(uint64_t before_ns = UINT64_MAX) {
    std::vector<TraceRecord> out;
    ring_.Take(before_ns, out);
    return out;
  }
  void AddEvents(uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) lane_.AddEvent(18, i);
  }

  uint64_t now_ = 1000;
  TraceRing ring_;
  TraceSettings settings_;
  LaneTrace lane_{ring_, settings_, /*device=*/1, /*lcore=*/2};
};

TEST_F(TraceTest, HandsOverRecordsInTheirOrder) {
  AddEvents(3);
  const std::vector<TraceRecord> taken = Taken();
  ASSERT_EQ(taken.size(), 3u);
  for (uint32_t i = 0; i < 3; ++i) EXPECT_EQ(taken[i].event.type, i);
  EXPECT_EQ(taken[0].time_ns, 1000u);
  EXPECT_EQ(taken[0].qpn, 18u);
  EXPECT_EQ(taken[0].kind, TraceKind::kEvent);
  EXPECT_EQ(taken[0].device, 1);
  EXPECT_EQ(taken[0].lcore, 2);
  EXPECT_TRUE(Taken().empty());
}

TEST_F(TraceTest, TellsOfLossesBehindTheRecordsBeforeThem) {
  AddEvents(kRoom + 5);
  now_ = 2000;
  AddEvents(1);
  std::vector<TraceRecord> taken = Taken();
  ASSERT_EQ(taken.size(), kRoom + 1);
  EXPECT_EQ(taken[kRoom - 1].event.type, kRoom - 1);
  EXPECT_EQ(taken[kRoom].kind, TraceKind::kLost);
  EXPECT_EQ(taken[kRoom].lost.records, 6u);
  EXPECT_EQ(taken[kRoom].time_ns, 2000u) << "of the last one";
  AddEvents(1);
  taken = Taken();
  ASSERT_EQ(taken.size(), 1u) << "losses are told of once";
  EXPECT_EQ(taken[0].kind, TraceKind::kEvent);
}

TEST_F(TraceTest, TellsOfLossesBeforeTheNextRecord) {
  AddEvents(kRoom);
  now_ = 2000;
  AddEvents(3);
  ASSERT_EQ(Taken(2000).size(), kRoom) << "the losses are too new";
  now_ = 3000;
  AddEvents(1);
  const std::vector<TraceRecord> taken = Taken();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].kind, TraceKind::kLost);
  EXPECT_EQ(taken[0].lost.records, 3u);
  EXPECT_EQ(taken[0].time_ns, 2000u);
  EXPECT_EQ(taken[1].time_ns, 3000u);
}

TEST_F(TraceTest, KeepsRecordsThatAreTooNew) {
  AddEvents(1);
  now_ = 2000;
  AddEvents(1);
  EXPECT_EQ(Taken(2000).size(), 1u);
  EXPECT_EQ(Taken(2001).size(), 1u);
}

TEST_F(TraceTest, CopiesHeadersOnlyOfThePacket) {
  std::array<std::byte, 64> frame;
  frame.fill(std::byte{0xAB});
  lane_.AddPacket(18, frame, /*bytes=*/20, /*is_sent=*/true, /*is_marked=*/false);
  lane_.AddPacket(18, frame, /*bytes=*/60, /*is_sent=*/false, /*is_marked=*/true);
  const std::vector<TraceRecord> taken = Taken();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].packet.headers[19], std::byte{0xAB});
  EXPECT_EQ(taken[0].packet.headers[20], std::byte{0});
  EXPECT_EQ(taken[1].packet.headers[43], std::byte{0xAB});
  EXPECT_EQ(taken[1].packet.bytes, 60);
  EXPECT_TRUE(taken[0].packet.is_sent);
  EXPECT_TRUE(taken[1].packet.is_marked);
}

TEST_F(TraceTest, HasTheEndOfAQueuePairAsAState) {
  lane_.AddEnd(18, roce::QpState::kErr);
  const std::vector<TraceRecord> taken = Taken();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].kind, TraceKind::kState);
  EXPECT_EQ(taken[0].state.from, static_cast<uint8_t>(roce::QpState::kErr));
  EXPECT_EQ(taken[0].state.to, TraceState::kDestroyed);
}

TEST_F(TraceTest, PassesRecordsBetweenThreads) {
  constexpr uint32_t kRecords = 200'000;
  std::thread lcore([this] { AddEvents(kRecords); });
  std::vector<TraceRecord> taken;
  uint64_t seen = 0;
  size_t counted = 0;
  while (seen < kRecords) {
    ring_.Take(UINT64_MAX, taken);
    for (; counted < taken.size(); ++counted) {
      const TraceRecord& record = taken[counted];
      // An event has the number of those before it, lost or not.
      if (record.kind == TraceKind::kEvent) {
        ASSERT_EQ(record.event.type, seen);
      }
      seen += record.kind == TraceKind::kLost ? record.lost.records : 1;
    }
  }
  lcore.join();
  EXPECT_EQ(seen, kRecords);
}

class FilteredTraceTest : public TraceTest {
 protected:
  FilteredTraceTest()
      : TraceTest({.qpns = {roce::Qpn(18)}, .kinds = 1u << static_cast<int>(TraceKind::kState)}) {}
};

TEST_F(FilteredTraceTest, TakesOnlyWhatWasAskedFor) {
  lane_.AddEvent(18, 1);
  lane_.AddState(20, roce::QpState::kReset, roce::QpState::kInit);
  lane_.AddEnd(20, roce::QpState::kInit);
  lane_.AddState(18, roce::QpState::kReset, roce::QpState::kInit);
  const std::vector<TraceRecord> taken = Taken();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_EQ(taken[0].state.to, static_cast<uint8_t>(roce::QpState::kInit));
}

class ChosenTraceTest : public TraceTest {
 protected:
  ChosenTraceTest()
      : TraceTest({.qpns = {roce::Qpn(18)}, .kinds = 1u << static_cast<int>(TraceKind::kEvent)}) {}
};

// A reader waits for the ends of the queue pairs that it names: their records are not lost.
TEST_F(ChosenTraceTest, HasRoomForTheEndsOfItsQueuePairs) {
  AddEvents(kRoom + 5);
  lane_.AddEnd(20, roce::QpState::kRts);
  lane_.AddEnd(18, roce::QpState::kRts);
  const std::vector<TraceRecord> taken = Taken();
  ASSERT_EQ(taken.size(), kRoom + 2);
  EXPECT_EQ(taken[kRoom].lost.records, 5u);
  EXPECT_EQ(taken[kRoom + 1].state.to, TraceState::kDestroyed);
}

}  // namespace
}  // namespace roci::dataplane
