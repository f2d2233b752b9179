// The judge of captures on connections that use more than half of the PSNs, in which they are
// ordered (IBTA vol 1, 9.7.2), and on READs that span many of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/tools/judge/talk.h"

namespace roci::tools::judge {
namespace {

using roce::Opcode;
using testing::Contains;
using testing::Not;

constexpr uint32_t kReadBytes = 1u << 30;
constexpr uint32_t kReadPsns = 1u << 20;  // with a path MTU of 1024
constexpr uint32_t kReads = 9;            // more than half of the PSNs

// READs move the next PSN far. How the judge learns that:
enum class Learns {
  kFromPathMtu,      // known before
  kFromNextRequest,  // while the path MTU is unknown
  kFromResponse,     // which tells the path MTU
  kTwice,            // two of the longest READs
};
constexpr Learns kWays[] = {Learns::kFromPathMtu, Learns::kFromNextRequest, Learns::kFromResponse,
                            Learns::kTwice};

// A conversation that has used more than half of the PSNs. Returns the next one.
uint32_t TalkLong(Talk& talk, Learns way) {
  talk.Request(Opcode::kRcSendOnly, 0, 8);
  talk.Ack(0, 1);
  uint32_t psn = 1;
  if (way == Learns::kFromResponse || way == Learns::kTwice) {
    // With the smallest path MTU, the longest READ spans half of the PSNs.
    constexpr uint32_t kMostReadBytes = 1u << 31, kMostReadPsns = 1u << 23;
    talk.Request(Opcode::kRcReadRequest, psn, kMostReadBytes);
    talk.Response(Opcode::kRcReadResponseFirst, psn, 0x1F, 2, 256);
    psn += kMostReadPsns;
    if (way == Learns::kFromResponse) return psn;
    talk.Request(Opcode::kRcReadRequest, psn, kMostReadBytes);
    return psn + kMostReadPsns;
  }
  if (way == Learns::kFromPathMtu) {
    talk.Request(Opcode::kRcSendFirst, psn++, 1024);
    talk.Request(Opcode::kRcSendLast, psn++, 8);
  }
  for (uint32_t i = 0; i < kReads; ++i, psn += kReadPsns) {
    talk.Request(Opcode::kRcReadRequest, psn, kReadBytes);
  }
  return psn;
}

TEST(JudgeOfManyPsns, JudgesNaksAsBefore) {
  for (const Learns way : kWays) {
    Talk talk;
    const uint32_t psn = TalkLong(talk, way);
    talk.Request(Opcode::kRcSendOnly, psn, 8);
    talk.Request(Opcode::kRcSendOnly, psn + 1, 8);
    for (int i = 0; i < 2; ++i) talk.Response(Opcode::kRcAcknowledge, psn, 0x60, 12);
    EXPECT_THAT(NamesIn(talk.frames()), Contains("second_nak")) << static_cast<int>(way);
  }
}

TEST(JudgeOfManyPsns, JudgesRetransmissionsAsBefore) {
  for (const Learns way : kWays) {
    Talk talk;
    const uint32_t psn = TalkLong(talk, way);
    talk.Request(Opcode::kRcSendOnly, psn, 8);
    talk.Response(Opcode::kRcAcknowledge, psn, 0x20, 12);  // RNR, 655 ms
    talk.Request(Opcode::kRcSendOnly, psn, 8);
    EXPECT_THAT(NamesIn(talk.frames()), Contains("rnr_timer")) << static_cast<int>(way);
  }
}

TEST(JudgeOfManyPsns, SeesThatTheLastRequestsAreAnswered) {
  for (const Learns way : kWays) {
    Talk talk;
    const uint32_t psn = TalkLong(talk, way);
    talk.Request(Opcode::kRcSendOnly, psn, 8);
    talk.Ack(psn, 12);
    talk.At(9'000'000'000).Request(Opcode::kRcSendOnly, psn + 1, 8);
    Judge judge;
    JudgeAll(talk.frames(), judge);
    EXPECT_THAT(NamesOf(judge), Not(Contains("ack_missing?"))) << static_cast<int>(way);
    EXPECT_EQ(judge.flows().flows().front().requests.unanswered, roce::Psn(psn + 1));
  }
}

TEST(JudgeOfManyPsns, NoticesAnAcknowledgementOfWhatWasNotSent) {
  for (const Learns way : kWays) {
    Talk talk;
    const uint32_t psn = TalkLong(talk, way);
    talk.Request(Opcode::kRcSendOnly, psn, 8);
    talk.Ack(psn + 1, 12);
    talk.Request(Opcode::kRcSendOnly, psn + 1, 8);
    EXPECT_THAT(NamesIn(talk.frames()), Contains("ack_unsent")) << static_cast<int>(way);
  }
}

TEST(JudgeOfManyPsns, ForgetsRequestsThatAreOlderThanHalfOfThePsns) {
  Talk talk;
  TalkLong(talk, Learns::kFromPathMtu);
  Judge judge;
  JudgeAll(talk.frames(), judge);
  const RequestState& state = judge.flows().flows().front().requests;
  ASSERT_FALSE(state.sent.empty());
  EXPECT_GE(roce::Distance(state.sent.front().psn, state.next - 1), 0);
}

TEST(JudgeOfManyPsns, MatchesQueuePairsByPsnsThatAreInUse) {
  for (const bool is_in_use : {true, false}) {
    Talk talk;
    uint32_t psn = 0;
    talk.Request(Opcode::kRcSendFirst, psn++, 1024);
    talk.Request(Opcode::kRcSendLast, psn++, 8);
    for (uint32_t i = 0; i < kReads; ++i, psn += kReadPsns) {
      talk.Request(Opcode::kRcReadRequest, psn, kReadBytes);
    }
    talk.Response(Opcode::kRcReadResponseFirst, is_in_use ? psn - kReadPsns : psn + kReadPsns, 0x1F,
                  1, 1024);
    Judge judge;
    JudgeAll(talk.frames(), judge);
    EXPECT_EQ(judge.flows().flows().front().peer != nullptr, is_in_use);
  }
}

TEST(JudgeOfManyPsns, JudgesAllResponsesOfALongRead) {
  for (const bool has_gap : {false, true}) {
    Talk talk;
    talk.Request(Opcode::kRcSendFirst, 0, 1024);
    talk.Request(Opcode::kRcSendLast, 1, 8);
    talk.Ack(1, 1);
    talk.Request(Opcode::kRcReadRequest, 2, kReadBytes);
    talk.Response(Opcode::kRcReadResponseFirst, 2, 0x1F, 2, 1024);
    talk.Response(Opcode::kRcReadResponseMiddle, has_gap ? 4 : 3, 0, 0, 1024);
    Judge judge;
    JudgeAll(talk.frames(), judge);
    EXPECT_EQ(judge.flows().flows().front().peer->totals.payload_bytes, 2048u);
    const std::vector<std::string> gap = {"read_gap?"};
    EXPECT_EQ(NamesOf(judge), has_gap ? gap : std::vector<std::string>());
  }
}

// ---- While the path MTU is unknown ----

TEST(JudgeOfReads, TakesTheRestOfAReadWithAnUnknownPathMtu) {
  struct Case {
    uint64_t va;
    uint32_t bytes;
    bool is_rest;
  };
  // 1000 bytes with 2 PSNs: the path MTU is 512.
  for (const Case& rest : {Case{0x1200, 488, true}, Case{0x1200, 480, false},
                           Case{0x1100, 744, false}, Case{0x1000, 1000, false}}) {
    Talk talk;
    talk.Request(Opcode::kRcReadRequest, 0, 1000);
    talk.Request(Opcode::kRcReadRequest, 2, 8);
    SetField(talk.At(2'000'000'000).Request(Opcode::kRcReadRequest, 1, rest.bytes), "reth.va",
             rest.va);
    const std::vector<std::string> differs = {"repeat_differs"};
    EXPECT_EQ(NamesIn(talk.frames()), rest.is_rest ? std::vector<std::string>() : differs)
        << rest.bytes;
  }
}

TEST(JudgeOfReads, TakesTheLastResponseWithAnUnknownPathMtu) {
  for (const uint32_t bytes : {488u, 480u}) {
    Talk talk;
    talk.Request(Opcode::kRcReadRequest, 0, 1000);
    talk.Request(Opcode::kRcReadRequest, 2, 8);
    talk.Response(Opcode::kRcReadResponseLast, 1, 0x1F, 1, bytes);
    const std::vector<std::string> gap = {"read_gap?"}, both = {"read_gap?", "read_length"};
    EXPECT_EQ(NamesIn(talk.frames()), bytes == 488 ? gap : both);
  }
}

}  // namespace
}  // namespace roci::tools::judge
