// Calls put together from chunks, and replies taken apart into chunks: compared byte by byte with
// the messages, and each defect has its reason.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/interop/rpcrdma/call_plan.h"
#include "tests/interop/rpcrdma/reply_plan.h"
#include "tests/interop/rpcrdma/send_batch.h"

namespace rpcrdma {
namespace {

constexpr size_t kMost = 1 << 20;

std::vector<std::byte> Numbered(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + 1);
  return bytes;
}

// The requester's memory is a message's own bytes: segment offsets are offsets in it.
std::vector<std::byte> Assemble(const CallPlan& plan, const std::vector<std::byte>& payload,
                                const std::vector<std::byte>& memory) {
  std::vector<std::byte> message(plan.length, std::byte{0xEE});
  size_t next = 0;
  for (const CallPart& part : plan.parts) {
    EXPECT_EQ(part.to, next) << "no gaps";
    next += part.length;
    const auto to = message.begin() + static_cast<ptrdiff_t>(part.to);
    if (part.source == CallPart::Source::kZeros) {
      std::fill_n(to, part.length, std::byte{0});
      continue;
    }
    const bool is_read = part.source == CallPart::Source::kRead;
    const std::vector<std::byte>& from = is_read ? memory : payload;
    const size_t begin = is_read ? part.remote : part.from;
    EXPECT_LE(begin + part.length, from.size());
    std::copy_n(from.begin() + static_cast<ptrdiff_t>(begin), part.length, to);
  }
  EXPECT_EQ(next, plan.length);
  return message;
}

std::vector<std::byte> Slice(const std::vector<std::byte>& bytes, size_t begin, size_t end) {
  return {bytes.begin() + static_cast<ptrdiff_t>(begin),
          bytes.begin() + static_cast<ptrdiff_t>(end)};
}

std::vector<std::byte> Join(std::vector<std::byte> front, const std::vector<std::byte>& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

Header Call(std::vector<ReadSegment> reads, Procedure procedure = Procedure::kMsg) {
  Header header;
  header.procedure = procedure;
  header.reads = std::move(reads);
  return header;
}

CallFault Fault(const Header& header, size_t payload, size_t most = kMost) {
  CallPlan plan;
  return PlanCall(header, payload, most, plan);
}

TEST(CallPlan, InlineCallsStayAsTheyAre) {
  const auto message = Numbered(60);
  CallPlan plan;
  ASSERT_EQ(PlanCall(Call({}), message.size(), kMost, plan), CallFault::kNone);
  EXPECT_EQ(Assemble(plan, message, {}), message);
}

TEST(CallPlan, ChunkAtTheEndInSeveralSegments) {
  const auto message = Numbered(1000);
  CallPlan plan;
  ASSERT_EQ(
      PlanCall(Call({{40, {1, 500, 40}}, {40, {2, 0, 77}}, {40, {3, 460, 540}}}), 40, kMost, plan),
      CallFault::kNone);
  EXPECT_EQ(Assemble(plan, Slice(message, 0, 40), message), message);
  EXPECT_EQ(plan.parts.size(), 3u) << "the empty segment needs no READ";
}

TEST(CallPlan, ChunkInTheMiddleIsRoundedUp) {
  for (size_t length = 97; length <= 100; ++length) {
    auto message = Numbered(160);
    std::fill(message.begin() + 40 + static_cast<ptrdiff_t>(length), message.begin() + 140,
              std::byte{0});
    CallPlan plan;
    const auto payload = Join(Slice(message, 0, 40), Slice(message, 140, 160));
    ASSERT_EQ(
        PlanCall(Call({{40, {1, static_cast<uint32_t>(length), 40}}}), payload.size(), kMost, plan),
        CallFault::kNone);
    EXPECT_EQ(Assemble(plan, payload, message), message) << length;
  }
}

// Positions count from the front of the whole message, in any order of the list.
TEST(CallPlan, SeveralChunks) {
  const auto message = Numbered(400);
  const auto payload =
      Join(Join(Slice(message, 0, 40), Slice(message, 140, 200)), Slice(message, 300, 400));
  CallPlan plan;
  ASSERT_EQ(PlanCall(Call({{200, {2, 100, 200}}, {40, {1, 100, 40}}}), payload.size(), kMost, plan),
            CallFault::kNone);
  EXPECT_EQ(Assemble(plan, payload, message), message);
}

TEST(CallPlan, LongCall) {
  const auto message = Numbered(5000);
  CallPlan plan;
  ASSERT_EQ(
      PlanCall(Call({{0, {1, 4096, 0}}, {0, {2, 904, 4096}}}, Procedure::kNomsg), 0, kMost, plan),
      CallFault::kNone);
  EXPECT_EQ(Assemble(plan, {}, message), message);
}

// The Position Zero Read chunk holds what is left of the message; its segments are divided.
TEST(CallPlan, LongCallWithAnotherChunk) {
  const auto message = Numbered(5000);
  const auto memory =
      Join(Join(Slice(message, 0, 1000), Slice(message, 3000, 5000)), Slice(message, 1000, 3000));
  CallPlan plan;
  ASSERT_EQ(PlanCall(Call({{0, {1, 600, 0}}, {0, {2, 2400, 600}}, {1000, {3, 2000, 3000}}},
                          Procedure::kNomsg),
                     0, kMost, plan),
            CallFault::kNone);
  EXPECT_EQ(Assemble(plan, {}, memory), message);
}

TEST(CallPlan, EveryDefectHasItsReason) {
  const Segment segment = {1, 100, 0};
  EXPECT_EQ(Fault(Call({{0, segment}}), 40), CallFault::kPositionZeroInMsg);
  EXPECT_EQ(Fault(Call({}, Procedure::kNomsg), 0), CallFault::kNoPositionZero);
  EXPECT_EQ(Fault(Call({{40, segment}}, Procedure::kNomsg), 0), CallFault::kNoPositionZero);
  EXPECT_EQ(Fault(Call({{0, segment}}, Procedure::kNomsg), 4), CallFault::kPayloadInNomsg);
  EXPECT_EQ(Fault(Call({{38, segment}}), 40), CallFault::kUnalignedPosition);
  EXPECT_EQ(Fault(Call({{20, segment}, {40, segment}}), 40), CallFault::kPositionInChunk);
  EXPECT_EQ(Fault(Call({{44, segment}}), 40), CallFault::kPositionBeyondEnd);
  EXPECT_EQ(Fault(Call({{0xFFFF'FFFC, segment}}), 40), CallFault::kPositionBeyondEnd);
  EXPECT_EQ(Fault(Call({{104, segment}, {0, segment}}, Procedure::kNomsg), 0),
            CallFault::kPositionBeyondEnd);
}

TEST(CallPlan, LengthsAreBounded) {
  EXPECT_EQ(Fault(Call({{40, {1, 60, 0}}}), 40, 100), CallFault::kNone);
  EXPECT_EQ(Fault(Call({{40, {1, 61, 0}}}), 40, 100), CallFault::kTooLong);
  EXPECT_EQ(Fault(Call({{40, {1, 57, 0}}}), 44, 100), CallFault::kTooLong) << "with round-up";
  EXPECT_EQ(Fault(Call({{0, {1, 101, 0}}}, Procedure::kNomsg), 0, 100), CallFault::kTooLong);
  EXPECT_EQ(Fault(Call({{0, {1, 0xFFFF'FFFF, 0}}, {0, {1, 2, 0}}}, Procedure::kNomsg), 0, 100),
            CallFault::kTooLong);
  EXPECT_EQ(Fault(Call({{40, {1, 0xFFFF'FFFF, 0}}, {40, {1, 0xFFFF'FFFF, 0}}}), 40, 100),
            CallFault::kTooLong);
  EXPECT_EQ(Fault(Call({}), 101, 100), CallFault::kTooLong);
}

// ---- Replies. The requester's memory is one array; segment offsets are offsets in it.

struct Delivered {
  std::vector<std::byte> memory;
  std::vector<std::byte> inline_payload;
};

Delivered Deliver(const ReplyPlan& plan, const std::vector<std::byte>& message) {
  Delivered delivered;
  delivered.memory.assign(4096, std::byte{0});
  for (const RemoteWrite& write : plan.writes) {
    EXPECT_GT(write.from.length, 0u);
    EXPECT_LE(write.from.offset + write.from.length, message.size());
    std::copy_n(message.begin() + static_cast<ptrdiff_t>(write.from.offset), write.from.length,
                delivered.memory.begin() + static_cast<ptrdiff_t>(write.to));
  }
  for (const Range& range : plan.payload) {
    delivered.inline_payload =
        Join(delivered.inline_payload, Slice(message, range.offset, range.offset + range.length));
  }
  return delivered;
}

Header Offer(std::vector<Chunk> writes, std::optional<Chunk> reply = std::nullopt) {
  Header header;
  header.xid = 77;
  header.writes = std::move(writes);
  header.reply = std::move(reply);
  return header;
}

TEST(ReplyPlan, ShortRepliesAreInline) {
  const auto message = Numbered(100);
  ReplyPlan plan;
  ASSERT_EQ(PlanReply(Offer({}, Chunk{{1, 4096, 0}}), 100, {}, 1024, 5, plan), ReplyFault::kNone);
  EXPECT_EQ(plan.header.procedure, Procedure::kMsg);
  EXPECT_EQ(plan.header.xid, 77u);
  EXPECT_EQ(plan.header.credits, 5u);
  EXPECT_FALSE(plan.header.reply) << "unused";
  EXPECT_TRUE(plan.writes.empty());
  EXPECT_EQ(Deliver(plan, message).inline_payload, message);
}

TEST(ReplyPlan, DataGoesIntoTheWriteChunkWithoutRoundUp) {
  const auto message = Numbered(200);
  ReplyPlan plan;
  ASSERT_EQ(
      PlanReply(Offer({{{1, 50, 1000}, {2, 0, 7}, {3, 100, 2000}}}), 200, {28, 97}, 1024, 5, plan),
      ReplyFault::kNone);
  const Delivered delivered = Deliver(plan, message);
  EXPECT_EQ(Slice(delivered.memory, 1000, 1050), Slice(message, 28, 78));
  EXPECT_EQ(Slice(delivered.memory, 2000, 2047), Slice(message, 78, 125));
  EXPECT_EQ(delivered.memory[2047], std::byte{0});
  EXPECT_EQ(delivered.inline_payload, Join(Slice(message, 0, 28), Slice(message, 128, 200)));
  EXPECT_EQ(plan.header.writes, (std::vector<Chunk>{{{1, 50, 1000}, {2, 0, 7}, {3, 47, 2000}}}));
}

TEST(ReplyPlan, DataAtTheEndLeavesItsRoundUpOut) {
  ReplyPlan plan;
  ASSERT_EQ(PlanReply(Offer({{{1, 97, 0}}}), 128, {28, 97}, 1024, 5, plan), ReplyFault::kNone);
  EXPECT_EQ(plan.payload, (std::vector<Range>{{0, 28}}));
}

TEST(ReplyPlan, UnusedWriteChunksHaveNoLength) {
  ReplyPlan plan;
  ASSERT_EQ(PlanReply(Offer({{{1, 50, 0}, {2, 60, 100}}, {{3, 9, 0}}}), 24, {}, 1024, 5, plan),
            ReplyFault::kNone);
  EXPECT_EQ(plan.header.writes, (std::vector<Chunk>{{{1, 0, 0}, {2, 0, 100}}, {{3, 0, 0}}}));
  EXPECT_TRUE(plan.writes.empty());
}

TEST(ReplyPlan, AnEmptyWriteChunkMeansInline) {
  ReplyPlan plan;
  ASSERT_EQ(PlanReply(Offer({{}}), 200, {28, 97}, 1024, 5, plan), ReplyFault::kNone);
  EXPECT_EQ(plan.payload, (std::vector<Range>{{0, 200}}));
}

TEST(ReplyPlan, LongRepliesGoIntoTheReplyChunk) {
  const auto message = Numbered(1500);
  ReplyPlan plan;
  ASSERT_EQ(PlanReply(Offer({}, Chunk{{1, 1000, 0}, {2, 1000, 2000}}), 1500, {}, 1024, 5, plan),
            ReplyFault::kNone);
  EXPECT_EQ(plan.header.procedure, Procedure::kNomsg);
  EXPECT_EQ(plan.header.reply, (Chunk{{1, 1000, 0}, {2, 500, 2000}}));
  EXPECT_TRUE(plan.payload.empty());
  const Delivered delivered = Deliver(plan, message);
  EXPECT_EQ(Join(Slice(delivered.memory, 0, 1000), Slice(delivered.memory, 2000, 2500)), message);
}

TEST(ReplyPlan, WriteChunkAndReplyChunk) {
  const auto message = Numbered(3000);
  ReplyPlan plan;
  ASSERT_EQ(
      PlanReply(Offer({{{1, 1000, 0}}}, Chunk{{2, 2000, 2000}}), 3000, {500, 1000}, 1024, 5, plan),
      ReplyFault::kNone);
  const Delivered delivered = Deliver(plan, message);
  EXPECT_EQ(Slice(delivered.memory, 0, 1000), Slice(message, 500, 1500));
  EXPECT_EQ(Slice(delivered.memory, 2000, 4000),
            Join(Slice(message, 0, 500), Slice(message, 1500, 3000)));
}

// The header counts, too.
TEST(ReplyPlan, InlineThresholdIsExact) {
  ReplyPlan plan;
  EXPECT_EQ(PlanReply(Offer({}), 1024 - kEmptyHeaderBytes, {}, 1024, 5, plan), ReplyFault::kNone);
  EXPECT_EQ(PlanReply(Offer({}), 1025 - kEmptyHeaderBytes, {}, 1024, 5, plan),
            ReplyFault::kTooLongForInline);
}

TEST(ReplyPlan, EveryDefectHasItsReason) {
  ReplyPlan plan;
  EXPECT_EQ(PlanReply(Offer({{{1, 96, 0}}}), 200, {28, 97}, 1024, 5, plan),
            ReplyFault::kWriteChunkTooShort);
  EXPECT_EQ(PlanReply(Offer({}, Chunk{{1, 1499, 0}}), 1500, {}, 1024, 5, plan),
            ReplyFault::kReplyChunkTooShort);
  EXPECT_EQ(PlanReply(Offer({}), 200, {27, 4}, 1024, 5, plan), ReplyFault::kBadBulk);
  EXPECT_EQ(PlanReply(Offer({}), 200, {28, 173}, 1024, 5, plan), ReplyFault::kBadBulk);
  EXPECT_EQ(PlanReply(Offer({}), 127, {28, 97}, 1024, 5, plan), ReplyFault::kBadBulk);
  EXPECT_EQ(PlanReply(Offer({}), 200, {204, 4}, 1024, 5, plan), ReplyFault::kBadBulk);
  EXPECT_EQ(PlanReply(Offer({}), 200, {28, SIZE_MAX}, 1024, 5, plan), ReplyFault::kBadBulk);
  // So many segments that not even the header fits.
  EXPECT_EQ(PlanReply(Offer({}, Chunk(70, {1, 100, 0})), 1500, {}, 1024, 5, plan),
            ReplyFault::kTooLongForInline);
}

TEST(ReplyPlan, KeyToInvalidateIsOneThatWasOffered) {
  EXPECT_EQ(KeyToInvalidate(Header()), 0u);
  EXPECT_EQ(KeyToInvalidate(Call({{40, {5, 1, 0}}})), 5u);
  EXPECT_EQ(KeyToInvalidate(Offer({{}, {{6, 1, 0}}})), 6u);
  EXPECT_EQ(KeyToInvalidate(Offer({{{6, 1, 0}}}, Chunk{{7, 1, 0}})), 7u);
}

TEST(Plans, EveryFaultHasAName) {
  for (size_t i = 0; i < kCallFaults; ++i) {
    EXPECT_NE(std::string(Name(static_cast<CallFault>(i))), "");
  }
  for (size_t i = 0; i < kReplyFaults; ++i) {
    EXPECT_NE(std::string(Name(static_cast<ReplyFault>(i))), "");
  }
}

TEST(SendQueueRoom, IsNeverExceeded) {
  SendQueueRoom room(10);
  EXPECT_TRUE(room.Reserve(6));
  EXPECT_FALSE(room.Reserve(5));
  EXPECT_TRUE(room.Reserve(4));
  EXPECT_FALSE(room.Reserve(1));
  EXPECT_TRUE(room.Complete()) << "the oldest batch: six entries";
  EXPECT_EQ(room.used(), 4u);
  EXPECT_TRUE(room.Reserve(6));
  EXPECT_TRUE(room.Complete());
  EXPECT_TRUE(room.Complete());
  EXPECT_EQ(room.used(), 0u);
  EXPECT_FALSE(room.Complete());
  EXPECT_FALSE(room.Reserve(11));
}

}  // namespace
}  // namespace rpcrdma
