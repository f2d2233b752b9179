// A client's choice of chunks, and the delays between its attempts to connect.
#include <gtest/gtest.h>

#include "tests/interop/rpcrdma/marshal_plan.h"
#include "tests/interop/rpcrdma/reconnect_delay.h"

namespace rpcrdma {
namespace {

TEST(ReconnectDelay, DoublesUpToItsLimit) {
  ReconnectDelay delay(100, 1000);
  for (const uint32_t expected : {0u, 100u, 200u, 400u, 800u, 1000u, 1000u}) {
    EXPECT_EQ(delay.Next_ms(), expected);
  }
  delay.Reset();
  EXPECT_EQ(delay.Next_ms(), 0u);
  EXPECT_EQ(delay.Next_ms(), 100u);
}

TEST(ReconnectDelay, LimitBelowTheFirstDelay) {
  ReconnectDelay delay(100, 10);
  for (const uint32_t expected : {0u, 10u, 10u}) EXPECT_EQ(delay.Next_ms(), expected);
}

TEST(ReconnectDelay, LargeLimitsDoNotWrap) {
  ReconnectDelay delay(0x8000'0000, 0xFFFF'FFFF);
  for (const uint32_t expected : {0u, 0x8000'0000u, 0xFFFF'FFFFu, 0xFFFF'FFFFu}) {
    EXPECT_EQ(delay.Next_ms(), expected);
  }
}

constexpr size_t kWhole = size_t{1} << 30;  // one segment for each chunk

TEST(MarshalPlan, InlineAsFarAsItFits) {
  MarshalPlan plan =
      PlanMarshal({.message_bytes = 996, .most_reply_bytes = 996}, 1024, 1024, kWhole);
  EXPECT_FALSE(plan.read_chunk || plan.long_call || plan.write_chunk || plan.reply_chunk);
  EXPECT_EQ(plan.payload, (std::vector<Range>{{0, 996}}));
  plan = PlanMarshal({.message_bytes = 1000, .most_reply_bytes = 996}, 1024, 1024, kWhole);
  EXPECT_TRUE(plan.long_call);
  EXPECT_TRUE(plan.payload.empty());
  plan = PlanMarshal({.message_bytes = 100, .most_reply_bytes = 997}, 1024, 1024, kWhole);
  EXPECT_TRUE(plan.reply_chunk);
  EXPECT_EQ(plan.reply_chunk_bytes, 997u);
}

TEST(MarshalPlan, ReadChunkLeavesBothSidesInline) {
  const MarshalPlan plan = PlanMarshal(
      {.message_bytes = 2000, .bulk = {100, 1797}, .most_reply_bytes = 24}, 1024, 1024, kWhole);
  EXPECT_TRUE(plan.read_chunk);
  EXPECT_EQ(plan.payload, (std::vector<Range>{{0, 100}, {1900, 100}})) << "without the round-up";
}

TEST(MarshalPlan, LongCallIfTheRestIsTooLong) {
  const MarshalPlan plan = PlanMarshal(
      {.message_bytes = 4000, .bulk = {2000, 1000}, .most_reply_bytes = 24}, 1024, 1024, kWhole);
  EXPECT_TRUE(plan.long_call);
  EXPECT_FALSE(plan.read_chunk);
}

TEST(MarshalPlan, ReplyWithDataTakesAWriteChunkAndIfNeedBeAReplyChunk) {
  MarshalPlan plan = PlanMarshal({.message_bytes = 40, .data_room = 5000, .most_reply_bytes = 100},
                                 1024, 1024, kWhole);
  EXPECT_TRUE(plan.write_chunk);
  EXPECT_FALSE(plan.reply_chunk);
  plan = PlanMarshal({.message_bytes = 40, .data_room = 5000, .most_reply_bytes = 1000}, 1024, 1024,
                     kWhole);
  EXPECT_TRUE(plan.write_chunk && plan.reply_chunk);
  EXPECT_EQ(plan.reply_chunk_bytes, 1000u);
}

// Segments lengthen the header, so less fits inline.
TEST(MarshalPlan, SegmentsCount) {
  const CallShape shape = {.message_bytes = 900, .data_room = 5000, .most_reply_bytes = 100};
  EXPECT_FALSE(PlanMarshal(shape, 1024, 1024, 5000).long_call);
  EXPECT_TRUE(PlanMarshal(shape, 1024, 1024, 500).long_call);
}

TEST(MarshalPlan, Segments) {
  EXPECT_EQ(SegmentsOf(7, 1000, 25, 10), (Chunk{{7, 10, 1000}, {7, 10, 1010}, {7, 5, 1020}}));
  EXPECT_TRUE(SegmentsOf(7, 1000, 0, 10).empty());
}

}  // namespace
}  // namespace rpcrdma
