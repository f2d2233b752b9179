// The judge of captures: what it reads, which queue pairs it matches, when it is sure, and its
// bounds.
#include "tools/judge/judge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/unit/tools/judge/talk.h"
#include "tools/judge/report.h"

namespace roci::tools::judge {
namespace {

using roce::Opcode;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

void GoodTalk(Talk& talk) {
  talk.Request(Opcode::kRcSendFirst, 0xFFFFFE, 1024, false);
  talk.Request(Opcode::kRcSendMiddle, 0xFFFFFF, 1024, false);
  talk.Request(Opcode::kRcSendLast, 0, 1);
  talk.Ack(0, 1);
  talk.Request(Opcode::kRcReadRequest, 1, 3000);
  talk.Request(Opcode::kRcWriteOnly, 4, 5);
  talk.Response(Opcode::kRcReadResponseFirst, 1, 0x1F, 2, 1024);
  talk.Response(Opcode::kRcReadResponseMiddle, 2, 0, 0, 1024);
  talk.Response(Opcode::kRcReadResponseLast, 3, 0x1F, 2, 952);
  talk.Ack(4, 3);
}

TEST(Judge, AcceptsAGoodConversation) {
  for (const bool is_ipv6 : {false, true}) {
    for (const uint16_t vlan : {uint16_t{0}, uint16_t{5}}) {
      Talk talk(is_ipv6, vlan);
      GoodTalk(talk);
      Judge judge;
      JudgeAll(talk.frames(), judge);
      EXPECT_THAT(NamesOf(judge), IsEmpty()) << is_ipv6 << vlan;
      const Flow& flow = judge.flows().flows().front();
      EXPECT_EQ(flow.totals.messages, 3u);
      EXPECT_EQ(flow.totals.rtt.count(), 3u);
      ASSERT_NE(flow.peer, nullptr);
      EXPECT_EQ(flow.peer->totals.payload_bytes, 3000u);
    }
  }
}

// A WRITE of eight packets.
void SendWrite(Talk& talk) {
  for (uint32_t i = 0; i < 8; ++i) {
    const Opcode opcode = i == 0   ? Opcode::kRcWriteFirst
                          : i == 7 ? Opcode::kRcWriteLast
                                   : Opcode::kRcWriteMiddle;
    Captured& frame = talk.Request(opcode, i, 1024, i == 7);
    if (i == 0) SetField(frame, "reth.length", 8 * 1024);
  }
}

TEST(Judge, AcceptsPacketsThatASelectiveNakAsksFor) {
  Talk talk;
  SendWrite(talk);
  roce::MissingEth missing;
  missing.Add(0);
  missing.Add(3);
  talk.SelectiveNak(2, missing, 0);
  talk.At(1'000'050'000).Request(Opcode::kRcWriteMiddle, 2, 1024, false);
  talk.Request(Opcode::kRcWriteMiddle, 5, 1024, false);
  talk.Request(Opcode::kRcSendOnly, 8, 8);
  talk.Ack(8, 2);
  Judge judge;
  JudgeAll(talk.frames(), judge);
  EXPECT_THAT(NamesOf(judge), IsEmpty());
  const FlowTotals& totals = judge.flows().flows().front().totals;
  EXPECT_EQ(totals.repeated, 2u);
  EXPECT_EQ(totals.timeouts, 0u);
  EXPECT_EQ(judge.flows().flows().front().peer->totals.selective_naks, 1u);
}

TEST(Judge, AcceptsPartsOfAReadThatAreAskedForAgain) {
  Talk talk;
  talk.Request(Opcode::kRcReadRequest, 0, 6 * 1024);
  talk.Request(Opcode::kRcWriteOnly, 6, 5);
  talk.Response(Opcode::kRcReadResponseFirst, 0, 0x1F, 1, 1024);
  talk.Response(Opcode::kRcReadResponseMiddle, 1, 0, 0, 1024);
  talk.Response(Opcode::kRcReadResponseMiddle, 4, 0, 0, 1024);
  talk.Response(Opcode::kRcReadResponseLast, 5, 0x1F, 1, 1024);
  talk.Ack(6, 2);
  Captured& part = talk.At(1'000'300'000).Request(Opcode::kRcReadRequest, 2, 2 * 1024);
  SetField(part, "reth.va", 0x1000 + 2 * 1024);
  talk.Request(Opcode::kRcWriteOnly, 7, 5);
  talk.Response(Opcode::kRcReadResponseFirst, 2, 0x1F, 1, 1024);
  talk.Response(Opcode::kRcReadResponseLast, 3, 0x1F, 1, 1024);
  talk.Ack(7, 3);
  Judge judge;
  JudgeAll(talk.frames(), judge);
  EXPECT_THAT(NamesOf(judge), IsEmpty());
  EXPECT_EQ(judge.flows().flows().front().totals.repeated, 1u);
}

TEST(Judge, ReportsPacketsThatASelectiveNakDidNotAskFor) {
  Talk talk;
  SendWrite(talk);
  roce::MissingEth missing;
  missing.Add(0);
  talk.SelectiveNak(2, missing, 0);
  talk.At(1'000'050'000).Request(Opcode::kRcWriteMiddle, 2, 1024, false);
  talk.Request(Opcode::kRcWriteMiddle, 5, 1024, false);
  talk.Request(Opcode::kRcSendOnly, 8, 8);
  EXPECT_THAT(NamesIn(talk.frames()), testing::Not(IsEmpty()));
}

TEST(Judge, JudgesTheHeadersOfCutFrames) {
  Talk talk;
  GoodTalk(talk);
  for (Captured& frame : talk.frames()) {
    frame.bytes.resize(std::min<size_t>(frame.bytes.size(), 80));
  }
  Judge judge;
  JudgeAll(talk.frames(), judge);
  EXPECT_THAT(NamesOf(judge), IsEmpty());
  EXPECT_EQ(judge.totals().roce, 10u);
  EXPECT_EQ(judge.totals().unchecked, 6u);
  EXPECT_EQ(judge.flows().flows().front().totals.payload_bytes, 2054u);
  for (Captured& frame : talk.frames()) frame.bytes.resize(50);
  Judge none;
  JudgeAll(talk.frames(), none);
  EXPECT_EQ(none.totals().cut, 10u);
  EXPECT_THAT(NamesOf(none), IsEmpty());
}

TEST(Judge, FindsPacketsInTunnels) {
  Talk talk;
  GoodTalk(talk);
  talk.frames()[5].bytes[60] ^= std::byte{1};
  for (Captured& frame : talk.frames()) {
    // MPLS: a label at the bottom of the stack after the Ethernet header.
    const std::vector<std::byte> label = {std::byte{0}, std::byte{1}, std::byte{1}, std::byte{64}};
    frame.bytes[12] = std::byte{0x88};
    frame.bytes[13] = std::byte{0x47};
    frame.bytes.insert(frame.bytes.begin() + 14, label.begin(), label.end());
    frame.original_length += 4;
  }
  EXPECT_THAT(NamesIn(talk.frames()), ElementsAre("icrc"));
}

TEST(Judge, IsSureUntilTheCaptureShowsThatItLacksFrames) {
  const auto with_two_naks = [](bool lacks) {
    Talk talk;
    talk.Request(Opcode::kRcSendOnly, 1);
    if (!lacks) talk.Request(Opcode::kRcSendOnly, 2);
    talk.Request(Opcode::kRcSendOnly, 3);
    talk.Ack(3, 3);
    for (uint32_t psn = 4; psn < 8; ++psn) talk.Request(Opcode::kRcSendOnly, psn);
    for (int i = 0; i < 2; ++i) talk.Response(Opcode::kRcAcknowledge, 4, 0x60, 3);
    return NamesIn(talk.frames());
  };
  EXPECT_THAT(with_two_naks(false), ElementsAre("second_nak"));
  EXPECT_THAT(with_two_naks(true), ElementsAre("psn_gap?", "second_nak?"));
}

TEST(Judge, AcceptsALossAndItsRecovery) {
  for (const bool lost_before_capture : {false, true}) {
    Talk talk;
    talk.Request(Opcode::kRcSendOnly, 1, 8);
    if (!lost_before_capture) talk.Request(Opcode::kRcSendOnly, 2, 8);
    talk.Request(Opcode::kRcSendOnly, 3, 8);
    talk.Ack(1, 1);
    talk.Response(Opcode::kRcAcknowledge, 2, 0x60, 1);
    talk.Request(Opcode::kRcSendOnly, 2, 8);
    talk.Request(Opcode::kRcSendOnly, 3, 8);
    talk.Ack(3, 3);
    talk.Request(Opcode::kRcSendOnly, 4, 8);
    Judge judge;
    JudgeAll(talk.frames(), judge);
    EXPECT_THAT(NamesOf(judge), IsEmpty()) << lost_before_capture;
    const FlowTotals& totals = judge.flows().flows().front().totals;
    EXPECT_EQ(totals.nak_recoveries, 1u);
    EXPECT_EQ(totals.recovery.least_ns(), 10'000u);
    EXPECT_EQ(totals.missing, lost_before_capture ? 1u : 0u);
    EXPECT_EQ(totals.repeated, 2u);
  }
}

// Captured at the responder: what it has sent may still be on its way.
TEST(Judge, AcceptsATimeoutThatCrossesANak) {
  Talk talk;
  talk.Request(Opcode::kRcSendOnly, 1, 8);
  talk.Request(Opcode::kRcSendOnly, 3, 8);
  talk.Ack(1, 1);
  talk.Response(Opcode::kRcAcknowledge, 2, 0x60, 1);
  for (const uint32_t psn : {1, 2, 3}) talk.Request(Opcode::kRcSendOnly, psn, 8);
  talk.At(1'100'000'000).Ack(3, 3);
  talk.At(1'100'003'000).Request(Opcode::kRcSendOnly, 2, 8);
  talk.Request(Opcode::kRcSendOnly, 3, 8);
  talk.Ack(3, 3);
  EXPECT_THAT(NamesIn(talk.frames()), ElementsAre("repeat_acknowledged?"));
  // A NAK explains one more repetition, not two.
  talk.Request(Opcode::kRcSendOnly, 4, 8);
  talk.At(1'200'000'000).Ack(4, 4);
  talk.At(1'200'003'000).Request(Opcode::kRcSendOnly, 2, 8);
  EXPECT_THAT(NamesIn(talk.frames()), Contains("repeat_early?"));
}

TEST(Judge, AcceptsATimeoutAndMeasuresIt) {
  Talk talk;
  talk.Request(Opcode::kRcSendOnly, 1, 8);
  talk.Ack(1, 1);
  talk.Request(Opcode::kRcSendOnly, 2, 8);
  talk.At(1'500'000'000).Request(Opcode::kRcSendOnly, 2, 8);
  talk.Ack(2, 2);
  Judge judge;
  JudgeAll(talk.frames(), judge);
  EXPECT_THAT(NamesOf(judge), IsEmpty());
  const FlowTotals& totals = judge.flows().flows().front().totals;
  EXPECT_EQ(totals.timeouts, 1u);
  EXPECT_GT(totals.timeout.least_ns(), 499'000'000u);
  EXPECT_EQ(totals.rtt.count(), 1u);  // not of the request that was sent twice
}

TEST(Judge, AcceptsCopiesOfTheNetworkAndAReadThatIsAskedForAgain) {
  Talk talk;
  talk.Request(Opcode::kRcSendOnly, 1, 8);
  Captured copy = talk.frames().back();
  talk.frames().push_back(std::move(copy));
  talk.Ack(1, 1);
  talk.Request(Opcode::kRcReadRequest, 2, 3000);
  talk.Response(Opcode::kRcReadResponseFirst, 2, 0x1F, 2, 1024);
  talk.At(1'200'000'000);
  Captured& rest = talk.Request(Opcode::kRcReadRequest, 3, 1976);
  SetField(rest, "reth.va", 0x1400);
  talk.Response(Opcode::kRcReadResponseFirst, 3, 0x1F, 2, 1024);
  talk.Response(Opcode::kRcReadResponseLast, 4, 0x1F, 2, 952);
  Judge judge;
  JudgeAll(talk.frames(), judge);
  EXPECT_THAT(NamesOf(judge), IsEmpty());
  EXPECT_EQ(judge.flows().flows().front().totals.duplicates, 1u);
}

TEST(Judge, AcceptsLostReadResponsesThatAreAskedForAgain) {
  Talk talk;
  talk.Request(Opcode::kRcReadRequest, 0, 3072);
  talk.Response(Opcode::kRcReadResponseFirst, 0, 0x1F, 1, 1024);
  talk.Response(Opcode::kRcReadResponseLast, 2, 0x1F, 1, 1024);
  SetField(talk.Request(Opcode::kRcReadRequest, 1, 2048), "reth.va", 0x1400);
  talk.Response(Opcode::kRcReadResponseFirst, 1, 0x1F, 1, 1024);
  talk.Response(Opcode::kRcReadResponseLast, 2, 0x1F, 1, 1024);
  talk.Request(Opcode::kRcSendOnly, 3, 8);
  talk.Ack(3, 2);
  Judge judge;
  JudgeAll(talk.frames(), judge);
  EXPECT_THAT(NamesOf(judge), IsEmpty());
  EXPECT_EQ(judge.flows().flows().front().peer->totals.missing, 1u);
}

TEST(Judge, TakesTheRestOfAMessageThatHadNoCredit) {
  for (const bool waits : {true, false}) {
    Talk talk;
    talk.Request(Opcode::kRcSendOnly, 0, 8);
    talk.Response(Opcode::kRcAcknowledge, 0, 0x00, 1);
    talk.At(2'000'000'000).Request(Opcode::kRcSendFirst, 1, 1024);
    if (waits) talk.Response(Opcode::kRcAcknowledge, 1, 0x00, 1);
    talk.Request(Opcode::kRcSendLast, 2, 8);
    const std::vector<std::string> none;
    EXPECT_EQ(NamesIn(talk.frames()), waits ? none : std::vector<std::string>{"credits"});
  }
}

TEST(Judge, TakesTheWordOfACaptureThatItLacksFrames) {
  Talk talk;
  for (uint32_t psn = 0; psn < 4; ++psn) talk.Request(Opcode::kRcSendOnly, psn);
  for (int i = 0; i < 2; ++i) talk.Response(Opcode::kRcAcknowledge, 1, 0x60, 1);
  for (const uint64_t dropped : {0, 1}) {
    Judge judge;
    JudgeAll(talk.frames(), judge, dropped);
    EXPECT_THAT(NamesOf(judge), ElementsAre(dropped == 0 ? "second_nak" : "second_nak?"));
  }
}

TEST(Judge, LearnsThePathMtuFromTheRequestAfterARead) {
  Talk talk;
  talk.Request(Opcode::kRcReadRequest, 0, 4096);
  talk.Request(Opcode::kRcReadRequest, 8, 512);
  talk.Response(Opcode::kRcReadResponseFirst, 0, 0x1F, 1, 512);
  Judge judge;
  JudgeAll(talk.frames(), judge);
  EXPECT_THAT(NamesOf(judge), IsEmpty());
}

TEST(Judge, MatchesTheRightOfManyQueuePairs) {
  Talk talk;
  for (uint32_t i = 0; i < 8; ++i) {
    talk.UseQueuePairs(0x100 + i, 0x200 + i);
    talk.Request(Opcode::kRcSendOnly, 1000 * i, 8);
  }
  for (uint32_t i = 0; i < 8; ++i) {
    talk.UseQueuePairs(0x100 + i, 0x200 + i);
    talk.Ack(1000 * i, 1);
  }
  Judge judge;
  JudgeAll(talk.frames(), judge);
  for (const Flow& flow : judge.flows().flows()) {
    ASSERT_NE(flow.peer, nullptr);
    EXPECT_EQ(flow.peer->key.dest_qpn ^ flow.key.dest_qpn, 0x300u);
  }
}

TEST(Judge, DoesNotGuessAmongQueuePairsWithEqualPsns) {
  Talk talk;
  for (const uint32_t server : {0x201u, 0x202u}) {
    talk.UseQueuePairs(0x100, server);
    talk.Request(Opcode::kRcSendOnly, 5, 8);
  }
  talk.Ack(5, 1);
  Judge judge;
  JudgeAll(talk.frames(), judge);
  for (const Flow& flow : judge.flows().flows()) EXPECT_EQ(flow.peer, nullptr);
}

TEST(Judge, TakesAFarPsnThatGoesOnForANewConnection) {
  Talk talk;
  talk.Request(Opcode::kRcSendOnly, 1, 8);
  talk.Ack(1, 1);
  talk.Request(Opcode::kRcSendOnly, 0x700000, 8);
  talk.Request(Opcode::kRcSendOnly, 0x700001, 8);
  talk.Ack(0x700001, 2);
  EXPECT_THAT(NamesIn(talk.frames()), IsEmpty());
}

TEST(Judge, MeasuresCnpsAndNoticesASenderThatIgnoresThem) {
  Talk talk;
  talk.UseEcn(2);
  uint32_t psn = 0;
  for (int ms = 0; ms < 40; ++ms) {
    for (int i = 0; i < 20; ++i) {
      talk.UseEcn(i == 0 ? 3 : 2);
      talk.Request(Opcode::kRcSendOnly, psn, 1000);
      talk.UseEcn(2);
      talk.Ack(psn, psn + 1);
      if (i == 0) talk.Cnp();
      ++psn;
    }
    talk.At(1'000'000'000 + (ms + 1) * 1'000'000);
  }
  Judge judge;
  JudgeAll(talk.frames(), judge);
  EXPECT_THAT(NamesOf(judge), ElementsAre("cnp_ignored?"));
  ASSERT_EQ(judge.congestion().ports().size(), 1u);
  EXPECT_EQ(judge.congestion().ports().begin()->second.count, 40u);
  EXPECT_EQ(judge.congestion().pairs().begin()->second.least_ns, 1'000'000u);
}

// ---- Directions ----

// Each frame twice, as an adapter that talks to itself sees it; `directions`: as the capture says.
std::vector<std::string> NamesOfTwice(Frames& frames, Direction first, Direction second,
                                      Judge& judge) {
  uint64_t number = 0;
  for (Captured& frame : frames) {
    for (const Direction direction : {first, second}) {
      judge.Add({.number = ++number,
                 .link_type = kLinkTypeEthernet,
                 .has_time = true,
                 .seconds = 1,
                 .nanoseconds = static_cast<uint32_t>(number * 1000),
                 .direction = direction,
                 .original_length = frame.original_length,
                 .bytes = frame.bytes});
    }
  }
  judge.Finish();
  return NamesOf(judge);
}

TEST(Judge, JudgesAFrameThatAnAdapterSendsToItselfOnce) {
  Talk talk;
  GoodTalk(talk);
  Judge judge;
  EXPECT_THAT(NamesOfTwice(talk.frames(), Direction::kOut, Direction::kIn, judge), IsEmpty());
  EXPECT_EQ(judge.totals().own_copies, 10u);
  EXPECT_EQ(judge.totals().roce, 20u);
  EXPECT_EQ(judge.flows().flows().front().totals.messages, 3u);
  // Received twice, a frame has been repeated by the peer or by the network.
  Judge received;
  EXPECT_THAT(NamesOfTwice(talk.frames(), Direction::kIn, Direction::kIn, received),
              Not(IsEmpty()));
  EXPECT_EQ(received.totals().own_copies, 0u);
  // Without directions nothing says that it is a copy.
  Judge unknown;
  EXPECT_THAT(NamesOfTwice(talk.frames(), Direction::kUnknown, Direction::kUnknown, unknown),
              Not(IsEmpty()));
}

TEST(Judge, KeepsApartWhatOthersSend) {
  Talk talk;
  GoodTalk(talk);
  Captured& answer = talk.frames()[3];
  OwnCopies copies;
  const auto is_copy = [&](Captured& frame, Direction direction, uint32_t interface = 0) {
    return copies.IsCopy({.interface = interface,
                          .link_type = kLinkTypeEthernet,
                          .direction = direction,
                          .bytes = frame.bytes},
                         interface);
  };
  answer.bytes[6] = std::byte{2};  // another source address
  EXPECT_FALSE(is_copy(talk.frames()[0], Direction::kIn)) << "not sent before";
  EXPECT_FALSE(is_copy(talk.frames()[0], Direction::kOut));
  EXPECT_FALSE(is_copy(answer, Direction::kIn));
  EXPECT_FALSE(is_copy(talk.frames()[0], Direction::kIn, 1)) << "another interface";
  EXPECT_TRUE(is_copy(talk.frames()[0], Direction::kIn));
  EXPECT_FALSE(is_copy(talk.frames()[0], Direction::kIn)) << "a second copy";
  talk.frames()[0].bytes.resize(10);
  EXPECT_FALSE(is_copy(talk.frames()[0], Direction::kIn));
}

// A replayed frame, or one of a raw packet queue pair, may have the peer's source address.
TEST(Judge, FollowsAPeerWhoseAddressTheAdapterHasSentWith) {
  Talk talk;
  GoodTalk(talk);
  Captured& of_peer = talk.frames()[3];
  of_peer.bytes[6] = std::byte{2};
  OwnCopies copies;
  const auto is_copy = [&](Captured& frame, Direction direction) {
    return copies.IsCopy(
        {.link_type = kLinkTypeEthernet, .direction = direction, .bytes = frame.bytes}, 0);
  };
  EXPECT_FALSE(is_copy(talk.frames()[0], Direction::kOut));
  EXPECT_FALSE(is_copy(of_peer, Direction::kOut)) << "replayed";
  EXPECT_TRUE(is_copy(of_peer, Direction::kIn)) << "to the adapter itself";
  EXPECT_FALSE(is_copy(of_peer, Direction::kIn)) << "of the peer";
}

// ---- Bounds ----

TEST(Judge, KeepsBoundedListsAndExactCounts) {
  Talk talk;
  for (uint32_t psn = 0; psn < 10'000; ++psn) talk.Request(Opcode::kRcSendMiddle, psn, 1000);
  Judge judge;
  JudgeAll(talk.frames(), judge);
  EXPECT_EQ(judge.findings().count(Rule::kPayloadLength, Certainty::kSure), 10'000u);
  EXPECT_EQ(judge.findings().list().size(), Findings::kMostPerFlow);
  EXPECT_LE(judge.flows().flows().front().requests.sent.size(), 4096u);
}

TEST(Judge, FollowsALimitedNumberOfFlows) {
  Talk talk;
  talk.Request(Opcode::kRcSendOnly, 1, 8);
  Captured& frame = talk.frames().front();
  Judge judge;
  for (uint32_t qpn = 0; qpn < FlowTable::kMostFlows + 5; ++qpn) {
    roce::StoreBe<uint32_t>(frame.bth() + 4, qpn & 0xFFFFFF);
    Seal(frame);
    judge.Add({.number = qpn + 1,
               .link_type = kLinkTypeEthernet,
               .original_length = frame.original_length,
               .bytes = frame.bytes});
  }
  judge.Finish();
  EXPECT_EQ(judge.totals().unfollowed, 5u);
  EXPECT_EQ(judge.flows().flows().size(), FlowTable::kMostFlows);
}

// ---- Reports ----

TEST(JudgeReport, SaysFrameTimeFlowRuleAndClause) {
  Talk talk;
  talk.Request(Opcode::kRcSendOnly, 1, 8).bytes[60] ^= std::byte{1};
  Judge judge;
  JudgeAll(talk.frames(), judge);
  ASSERT_EQ(judge.findings().list().size(), 1u);
  EXPECT_EQ(FindingText(judge.findings().list()[0]),
            "frame 1 1.000010000 10.0.0.1 > 10.0.0.2 qp 0x22: violation icrc: the ICRC is wrong: "
            "RC_SEND_ONLY, PSN 0x000001 [IBTA 7.8.1, A17.4.4]");
}

TEST(JudgeReport, DrawsTheGoodput) {
  Talk talk;
  GoodTalk(talk);
  Judge judge;
  JudgeAll(talk.frames(), judge);
  EXPECT_THAT(FlowText(judge.flows().flows().front()), HasSubstr("rtt: 10.0 us least"));
  EXPECT_THAT(FlowText(judge.flows().flows().front()), HasSubstr("|"));
  const std::string svg = GoodputSvg(judge.flows());
  EXPECT_THAT(svg, HasSubstr("<svg "));
  EXPECT_THAT(svg, HasSubstr("</svg>"));
  EXPECT_EQ(FlowJson(judge.flows().flows().front())["path_mtu"], 1024);
}

}  // namespace
}  // namespace roci::tools::judge
