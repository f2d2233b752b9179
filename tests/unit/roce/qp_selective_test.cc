// Selective repeat: the responder asks for what is missing and nothing else, and the requester
// repeats what it is asked for and nothing else.
#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "tests/unit/roce/qp_reorder_testing.h"

namespace roci::roce {
namespace {

NodeOptions Selective() {
  NodeOptions options = Tolerant();
  options.limits.selective_repeat = true;
  return options;
}

WirePacket MakeSelectiveNak(Psn psn, std::initializer_list<uint32_t> missing) {
  WirePacket packet = MakeNak(psn, NakCode::kPsnSequenceError);
  packet.tx.opcode = Opcode::kRcSelectiveNak;
  for (const uint32_t distance : missing) packet.tx.ext.missing.Add(distance);
  return packet;
}

// What a selective NAK asks for, by the distance from its PSN; empty: the packet is none.
std::vector<uint32_t> MissingOf(const WirePacket& packet) {
  std::vector<uint32_t> missing;
  if (packet.tx.opcode != Opcode::kRcSelectiveNak) return missing;
  EXPECT_EQ(packet.tx.ext.aeth.kind(), AethKind::kNak);
  EXPECT_EQ(packet.tx.ext.aeth.nak_code(), NakCode::kPsnSequenceError);
  for (uint32_t i = 0; i < MissingEth::kPsns; ++i) {
    if (packet.tx.ext.missing.Has(i)) missing.push_back(i);
  }
  return missing;
}

using Numbers = std::vector<uint32_t>;

// ---- The responder ----

class SelectiveResponder : public testing::Test {
 protected:
  // Packets of a WRITE of kPackets.
  void Receive(std::initializer_list<uint32_t> packets) {
    for (const uint32_t i : packets) node_.Receive(WritePacket(i, kPackets));
  }
  // The only packet to send, after the next timeout.
  WirePacket AfterTimeout() {
    EXPECT_TRUE(node_.PassTimeout());
    auto packets = node_.PollAll();
    EXPECT_EQ(packets.size(), 1u);
    return packets.empty() ? WirePacket() : packets.front();
  }

  static constexpr uint32_t kPackets = 20;
  Node node_{Selective()};
};

TEST_F(SelectiveResponder, AsksForAllThatIsMissingAndNothingElse) {
  Receive({0, 3, 4, 6, 9});
  EXPECT_TRUE(node_.PollAll().empty()) << "the packets may only be late";
  const WirePacket nak = AfterTimeout();
  EXPECT_EQ(nak.tx.psn, kRqPsn + 1);
  EXPECT_EQ(MissingOf(nak), (Numbers{0, 1, 4, 6, 7}));
  EXPECT_EQ(node_.host.count(QpCounter::kSelectiveNaksSent), 1u);
  EXPECT_EQ(node_.host.count(QpCounter::kSequenceNaksSent), 0u);
}

TEST_F(SelectiveResponder, AsksForEachGapWhenItsTimeHasCome) {
  Receive({0, 2});
  node_.now += kWaitNs / 2;
  Receive({5});
  EXPECT_EQ(MissingOf(AfterTimeout()), (Numbers{0}));
  const WirePacket second = AfterTimeout();
  EXPECT_EQ(second.tx.psn, kRqPsn + 1);
  EXPECT_EQ(MissingOf(second), (Numbers{2, 3}));
}

TEST_F(SelectiveResponder, AcknowledgesTheRepeatedPacketAndTheKeptOnes) {
  Receive({0, 2, 3, 6});
  AfterTimeout();
  Receive({1});
  EXPECT_EQ(node_.effects.early, EarlyAction::kOfferKept);
  Receive({2, 3});
  const auto answers = node_.PollAll();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].tx.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(answers[0].tx.psn, kRqPsn + 3);
}

TEST_F(SelectiveResponder, AsksAgainAfterTheUsualTimeOfAnAnswer) {
  Receive({0, 2});
  AfterTimeout();
  node_.now += 50'000;
  Receive({1, 2});
  node_.PollAll();
  Receive({4});
  AfterTimeout();
  EXPECT_EQ(node_.qp.NextTimeout(), node_.now + 50'000 + kWaitNs);
  EXPECT_EQ(MissingOf(AfterTimeout()), (Numbers{0}));
  const TimeNs begin = node_.now;
  EXPECT_EQ(MissingOf(AfterTimeout()), (Numbers{0}));
  EXPECT_EQ(node_.now, begin + 50'000 + kWaitNs);
}

TEST_F(SelectiveResponder, TellsAPeerThatDoesNotAnswerToGoBack) {
  Receive({0, 2});
  for (uint32_t i = 0; i < kMostAsks; ++i) {
    EXPECT_EQ(MissingOf(AfterTimeout()), (Numbers{0})) << i;
  }
  const WirePacket nak = AfterTimeout();
  EXPECT_EQ(nak.tx.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(nak.tx.ext.aeth.nak_code(), NakCode::kPsnSequenceError);
  EXPECT_EQ(nak.tx.psn, kRqPsn + 1);
  // From now on, it is told so at once.
  Receive({1, 2});
  node_.PollAll();
  Receive({4});
  const TimeNs begin = node_.now;
  EXPECT_EQ(AfterTimeout().tx.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(node_.now, begin + kWaitNs);
}

TEST_F(SelectiveResponder, ANakThatIsNotSentYetCountsOnce) {
  Receive({0, 3});
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(node_.PassTimeout());
  const auto packets = node_.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(MissingOf(packets[0]), (Numbers{0, 1}));
}

TEST_F(SelectiveResponder, DoesNotAskAgainForAGapThatIsBeingFilled) {
  Receive({0, 12});
  EXPECT_EQ(MissingOf(AfterTimeout()).size(), 11u);
  for (uint32_t i = 1; i < 12; ++i) {
    node_.now += 500'000;
    if (node_.qp.NextTimeout() <= node_.now) node_.qp.HandleTimeout(node_.host, node_.now);
    Receive({i});
    for (const WirePacket& packet : node_.PollAll()) {
      EXPECT_TRUE(MissingOf(packet).empty()) << i;
      EXPECT_EQ(packet.tx.ext.aeth.kind(), AethKind::kAck) << i;
    }
  }
  EXPECT_EQ(node_.host.count(QpCounter::kSequenceNaksSent), 0u);
}

TEST_F(SelectiveResponder, KeepsAskingAPeerThatHasAnswered) {
  Receive({0, 2});
  AfterTimeout();
  Receive({1, 2, 4});
  node_.PollAll();
  for (uint32_t i = 0; i < kMostAsks; ++i) AfterTimeout();
  EXPECT_EQ(AfterTimeout().tx.opcode, Opcode::kRcAcknowledge);
  Receive({3, 4});
  node_.PollAll();
  Receive({6});
  EXPECT_EQ(MissingOf(AfterTimeout()), (Numbers{0}));
}

TEST_F(SelectiveResponder, DoesNotAskForWhatHasComeMeanwhile) {
  Receive({0, 2, 4});
  ASSERT_TRUE(node_.PassTimeout());
  Receive({1, 2});
  auto answers = node_.PollAll();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].tx.psn, kRqPsn + 2) << "the ACK";
  EXPECT_EQ(answers[1].tx.psn, kRqPsn + 3);
  EXPECT_EQ(MissingOf(answers[1]), (Numbers{0}));
  Receive({6});
  ASSERT_TRUE(node_.PassTimeout());
  Receive({3, 4, 5, 6});
  for (const WirePacket& packet : node_.PollAll()) {
    EXPECT_EQ(packet.tx.opcode, Opcode::kRcAcknowledge);
    EXPECT_EQ(packet.tx.ext.aeth.kind(), AethKind::kAck);
  }
}

TEST_F(SelectiveResponder, TellsThePeerToGoBackWhenItHasNoRoom) {
  Receive({0, 2});
  node_.host.has_room_to_keep = false;
  Receive({3});
  const auto answers = node_.PollAll();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].tx.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(answers[0].tx.ext.aeth.nak_code(), NakCode::kPsnSequenceError);
}

TEST_F(SelectiveResponder, GivesUpAtLast) {
  Receive({0, 2});
  const TimeNs begin = node_.now;
  while (node_.qp.Upkeep().awaits_kept && node_.now < begin + 2 * kLongestKeptNs) {
    ASSERT_TRUE(node_.PassTimeout());
    node_.PollAll();
  }
  EXPECT_EQ(node_.now, begin + kWaitNs + kLongestKeptNs);
  EXPECT_EQ(node_.qp.NextTimeout(), kNever);
  EXPECT_LT(node_.host.count(QpCounter::kSelectiveNaksSent), 16u);
}

// On a slow link, the repeated packets of a long gap take longer than a silent peer may.
TEST_F(SelectiveResponder, WaitsAsLongAsTheGapIsFilled) {
  constexpr uint32_t kMany = 200;
  node_.Receive(WritePacket(0, kMany));
  node_.Receive(WritePacket(kMany - 1, kMany));
  AfterTimeout();
  const TimeNs begin = node_.now;
  for (uint32_t i = 1; i + 1 < kMany; ++i) {
    const TimeNs arrival = node_.now + 2 * kNsPerMs;
    while (node_.qp.NextTimeout() < arrival && node_.PassTimeout()) node_.PollAll();
    node_.now = arrival;
    node_.Receive(WritePacket(i, kMany));
  }
  EXPECT_GT(node_.now, begin + kLongestKeptNs + kWaitNs);
  EXPECT_EQ(node_.effects.early, EarlyAction::kOfferKept);
  EXPECT_EQ(node_.host.count(QpCounter::kSequenceNaksSent), 0u);
}

TEST_F(SelectiveResponder, AnRnrNakEndsAllAsking) {
  node_.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn + 1, 8));
  ASSERT_TRUE(node_.PassTimeout());
  node_.Receive(MakeRequest(Opcode::kRcSendOnly, kRqPsn, 8));
  const auto answers = node_.PollAll();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].tx.ext.aeth.kind(), AethKind::kRnrNak);
  EXPECT_EQ(node_.qp.NextTimeout(), kNever);
}

TEST_F(SelectiveResponder, SendsAPartOfAReadAgain) {
  node_.Receive(MakeReadRequest(kRqPsn, 6 * kMtu));
  EXPECT_EQ(node_.PollAll().size(), 6u);
  node_.Receive(MakeReadRequest(kRqPsn + 1, 2 * kMtu, kMtu));
  node_.Receive(MakeReadRequest(kRqPsn + 4, kMtu, 4 * kMtu));
  const auto answers = node_.PollAll();
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0].tx.opcode, Opcode::kRcReadResponseFirst);
  EXPECT_EQ(answers[0].tx.psn, kRqPsn + 1);
  EXPECT_EQ(answers[1].tx.opcode, Opcode::kRcReadResponseLast);
  EXPECT_EQ(answers[1].tx.payload_length, kMtu);
  EXPECT_EQ(answers[2].tx.opcode, Opcode::kRcReadResponseOnly);
  EXPECT_EQ(answers[2].tx.psn, kRqPsn + 4);
}

TEST_F(SelectiveResponder, APartOfAReadDoesNotDisturbTheRest) {
  node_.Receive(MakeReadRequest(kRqPsn, 4 * kMtu));
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(node_.Poll());
  node_.Receive(MakeReadRequest(kRqPsn, kMtu));
  node_.Receive(MakeReadRequest(kRqPsn + 2, 2 * kMtu, 2 * kMtu));
  const auto answers = node_.PollAll();
  std::vector<Psn> psns;
  for (const WirePacket& answer : answers) psns.push_back(answer.tx.psn);
  EXPECT_EQ(psns, (std::vector<Psn>{kRqPsn, kRqPsn + 2, kRqPsn + 3}));
}

TEST_F(SelectiveResponder, RefusesPartsOfAReadThatItWasNotAskedForBefore) {
  node_.Receive(MakeReadRequest(kRqPsn, 4 * kMtu));
  EXPECT_EQ(node_.PollAll().size(), 4u);
  for (const WirePacket& part :
       {MakeReadRequest(kRqPsn + 1, kMtu), MakeReadRequest(kRqPsn + 1, kMtu + 1, kMtu),
        MakeReadRequest(kRqPsn + 1, 0, kMtu), MakeReadRequest(kRqPsn + 1, 4 * kMtu, kMtu)}) {
    EXPECT_EQ(node_.Receive(part), DropReason::kStaleDuplicate);
  }
  EXPECT_TRUE(node_.PollAll().empty());
  Node other{Tolerant()};
  other.Receive(MakeReadRequest(kRqPsn, 4 * kMtu));
  other.PollAll();
  EXPECT_EQ(other.Receive(MakeReadRequest(kRqPsn + 1, kMtu, kMtu)), DropReason::kStaleDuplicate);
}

TEST_F(SelectiveResponder, KeepsABoundedNumberOfParts) {
  node_.Receive(MakeReadRequest(kRqPsn, 4 * kMtu));
  EXPECT_EQ(node_.PollAll().size(), 4u);
  for (uint32_t i = 0; i < kMostRereads; ++i) {
    EXPECT_EQ(node_.Receive(MakeReadRequest(kRqPsn + 1, kMtu, kMtu)), DropReason::kNone);
  }
  EXPECT_EQ(node_.Receive(MakeReadRequest(kRqPsn + 1, kMtu, kMtu)), DropReason::kStaleDuplicate);
  EXPECT_EQ(node_.PollAll().size(), size_t{kMostRereads});
}

// ---- The requester ----

class SelectiveRequester : public testing::Test {
 protected:
  // A WRITE of four packets, a READ of three, two SENDs: PSNs 0 to 3, 4 to 6, 7 and 8.
  void Send(Node& node) {
    node.host.PostSend(WorkOpcode::kRdmaWrite, 4 * kMtu);
    node.host.PostSend(WorkOpcode::kRdmaRead, 3 * kMtu);
    node.host.PostSend(WorkOpcode::kSend, 8);
    node.host.PostSend(WorkOpcode::kSend, 8);
    EXPECT_EQ(node.Run().size(), 7u);
  }
  static Numbers Psns(const std::vector<WirePacket>& packets) {
    Numbers psns;
    for (const WirePacket& packet : packets) psns.push_back(StepsForward(kSqPsn, packet.tx.psn));
    return psns;
  }

  Node node_{Selective()};
};

TEST_F(SelectiveRequester, RepeatsOnlyWhatItIsAskedFor) {
  Send(node_);
  node_.Receive(MakeSelectiveNak(kSqPsn + 1, {0, 2, 6}));
  node_.host.PostSend(WorkOpcode::kSend, 8);
  const auto packets = node_.Run();
  EXPECT_EQ(Psns(packets), (Numbers{1, 3, 7, 9})) << "then new requests";
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcWriteMiddle);
  EXPECT_EQ(packets[1].tx.opcode, Opcode::kRcWriteLast);
  EXPECT_EQ(packets[2].tx.opcode, Opcode::kRcSendOnly);
  EXPECT_EQ(node_.host.count(QpCounter::kRetransmittedPackets), 3u);
  EXPECT_EQ(node_.host.count(QpCounter::kSelectiveNaksReceived), 1u);
}

TEST_F(SelectiveRequester, RepeatsAReadAsAWhole) {
  Send(node_);
  node_.Receive(MakeSelectiveNak(kSqPsn + 4, {0, 1, 2, 4}));
  EXPECT_EQ(node_.host.send_completions.size(), 1u) << "a NAK acknowledges what is before it";
  const auto packets = node_.PollAll();
  EXPECT_EQ(Psns(packets), (Numbers{4, 8}));
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcReadRequest);
  EXPECT_EQ(packets[0].tx.ext.reth.length, 3 * kMtu);
}

TEST_F(SelectiveRequester, GoesOnBehindWhatIsAcknowledgedMeanwhile) {
  Send(node_);
  node_.Receive(MakeSelectiveNak(kSqPsn, {0, 2, 3}));
  EXPECT_EQ(node_.Poll()->tx.psn, kSqPsn);
  node_.Receive(MakeAck(kSqPsn + 2));
  EXPECT_EQ(Psns(node_.PollAll()), (Numbers{3}));
}

TEST_F(SelectiveRequester, RepeatsWhatSeveralNaksAskFor) {
  Send(node_);
  node_.Receive(MakeSelectiveNak(kSqPsn, {0, 2}));
  EXPECT_EQ(node_.Poll()->tx.psn, kSqPsn);
  node_.Receive(MakeSelectiveNak(kSqPsn, {3}));
  EXPECT_EQ(Psns(node_.PollAll()), (Numbers{2, 3}));
}

TEST_F(SelectiveRequester, NeverSendsMoreThanItHasSentBefore) {
  Send(node_);
  node_.Receive(MakeSelectiveNak(kSqPsn + 8, {0, 1, 2, 200}));
  node_.PollAll();
  Node other{Selective()};
  other.host.PostSend(WorkOpcode::kRdmaWrite, 4 * kMtu);
  other.Run();
  other.Receive(MakeSelectiveNak(kSqPsn + 1, {1, 3, 4, 255}));
  EXPECT_EQ(Psns(other.PollAll()), (Numbers{2}));
}

TEST_F(SelectiveRequester, UsesUpNoRetryAndDoesNotProlongTheTimer) {
  Send(node_);
  const TimeNs deadline = node_.qp.NextTimeout();
  for (uint32_t i = 0; i < 20; ++i) {
    node_.now += 1000;
    node_.Receive(MakeSelectiveNak(kSqPsn, {0}));
    EXPECT_EQ(Psns(node_.PollAll()), (Numbers{0}));
  }
  EXPECT_EQ(node_.qp.NextTimeout(), deadline);
  EXPECT_EQ(node_.qp.state(), QpState::kRts);
}

TEST_F(SelectiveRequester, APlainNakStillGoesBack) {
  Send(node_);
  node_.Receive(MakeSelectiveNak(kSqPsn, {0, 2}));
  EXPECT_EQ(node_.Poll()->tx.psn, kSqPsn);
  node_.Receive(MakeNak(kSqPsn, NakCode::kPsnSequenceError));
  EXPECT_EQ(Psns(node_.PollAll()), (Numbers{0, 1, 2, 3, 4, 7, 8}));
}

TEST_F(SelectiveRequester, TheFirstTimeoutRepeatsTheLastPacketTheNextOneAll) {
  Send(node_);
  ASSERT_TRUE(node_.PassTimeout());
  EXPECT_EQ(Psns(node_.PollAll()), (Numbers{8}));
  ASSERT_TRUE(node_.PassTimeout());
  EXPECT_EQ(Psns(node_.PollAll()), (Numbers{0, 1, 2, 3, 4, 7, 8}));
  EXPECT_EQ(node_.host.count(QpCounter::kAckTimeouts), 2u);
}

TEST_F(SelectiveRequester, APlainNakThatAnswersTheProbeGoesBackAtOnce) {
  NodeOptions options = Selective();
  options.retry_count = 1;
  Node node(options);
  Send(node);
  ASSERT_TRUE(node.PassTimeout());
  EXPECT_EQ(Psns(node.PollAll()), (Numbers{8}));
  node.Receive(MakeNak(kSqPsn, NakCode::kPsnSequenceError));
  EXPECT_EQ(Psns(node.PollAll()), (Numbers{0, 1, 2, 3, 4, 7, 8}));
  EXPECT_EQ(node.host.count(QpCounter::kAckTimeouts), 1u);
  node.Receive(MakeNak(kSqPsn, NakCode::kPsnSequenceError));
  EXPECT_TRUE(node.PollAll().empty()) << "of the same loss";
  EXPECT_TRUE(node.host.send_completions.empty()) << "no retry is left, and none was needed";
}

// A duplicate of an earlier NAK, while requests are repeated for another reason than the probe.
TEST_F(SelectiveRequester, AProbeThatWasAcknowledgedExplainsNoLaterNak) {
  Send(node_);
  ASSERT_TRUE(node_.PassTimeout());
  EXPECT_EQ(Psns(node_.PollAll()), (Numbers{8}));
  node_.Receive(MakeAck(kSqPsn + 3));
  node_.Receive(MakeRnrNak(kSqPsn + 4, 1));
  ASSERT_TRUE(node_.PassTimeout());
  EXPECT_FALSE(node_.PollAll().empty());
  node_.Receive(MakeNak(kSqPsn + 4, NakCode::kPsnSequenceError));
  EXPECT_TRUE(node_.PollAll().empty()) << "everything was repeated already";
  EXPECT_EQ(node_.host.count(QpCounter::kPacketSequenceErrors), 0u);
}

TEST_F(SelectiveRequester, WithAReadAtTheEndATimeoutGoesBack) {
  node_.host.PostSend(WorkOpcode::kRdmaWrite, 2 * kMtu);
  node_.host.PostSend(WorkOpcode::kRdmaRead, 3 * kMtu);
  EXPECT_EQ(node_.Run().size(), 3u);
  ASSERT_TRUE(node_.PassTimeout());
  EXPECT_EQ(Psns(node_.PollAll()), (Numbers{0, 1, 2}));
}

class SelectiveReader : public testing::Test {
 protected:
  // A READ of `packets`, then a WRITE.
  void Read(uint32_t packets) {
    packets_ = packets;
    node_.host.PostSend(WorkOpcode::kRdmaRead, packets * kMtu);
    node_.host.PostSend(WorkOpcode::kRdmaWrite, 8);
    ASSERT_EQ(node_.Run().size(), 2u);
  }
  void Respond(std::initializer_list<uint32_t> responses) {
    for (const uint32_t i : responses) {
      const Opcode opcode = i == 0              ? Opcode::kRcReadResponseFirst
                            : i + 1 == packets_ ? Opcode::kRcReadResponseLast
                                                : Opcode::kRcReadResponseMiddle;
      node_.Receive(MakeReadResponse(opcode, kSqPsn + i, kMtu));
    }
  }
  // PSN and packets of each READ request after the next timeout.
  std::vector<std::pair<uint32_t, uint32_t>> AskedAfterTimeout() {
    EXPECT_TRUE(node_.PassTimeout());
    std::vector<std::pair<uint32_t, uint32_t>> asked;
    for (const WirePacket& packet : node_.PollAll()) {
      EXPECT_EQ(packet.tx.opcode, Opcode::kRcReadRequest);
      const uint32_t at = StepsForward(kSqPsn, packet.tx.psn);
      EXPECT_EQ(packet.tx.ext.reth.va, ScriptedHost::kMemoryVa + at * kMtu);
      asked.emplace_back(at, packet.tx.ext.reth.length / kMtu);
    }
    return asked;
  }

  using Parts = std::vector<std::pair<uint32_t, uint32_t>>;
  uint32_t packets_ = 0;
  Node node_{Selective()};
};

TEST_F(SelectiveReader, AsksForTheMissingPartsOfAResponse) {
  Read(8);
  Respond({0, 3, 5, 7});
  EXPECT_EQ(AskedAfterTimeout(), (Parts{{1, 2}, {4, 1}, {6, 1}}));
  EXPECT_EQ(node_.host.count(QpCounter::kImpliedNaks), 1u);
  node_.Receive(MakeReadResponse(Opcode::kRcReadResponseFirst, kSqPsn + 1, kMtu));
  node_.Receive(MakeReadResponse(Opcode::kRcReadResponseLast, kSqPsn + 2, kMtu));
  EXPECT_EQ(node_.effects.early, EarlyAction::kOfferKept);
  Respond({3});
  node_.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn + 4, kMtu));
  Respond({5});
  node_.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn + 6, kMtu));
  Respond({7});
  ASSERT_EQ(node_.host.send_completions.size(), 1u);
  EXPECT_EQ(node_.host.send_completions[0].status, CompletionStatus::kSuccess);
  EXPECT_TRUE(node_.PollAll().empty());
}

TEST_F(SelectiveReader, AsksForAResponseThatAnAckShowsMissing) {
  Read(3);
  node_.Receive(MakeAck(kSqPsn + 3));
  EXPECT_EQ(node_.effects.early, EarlyAction::kKeep);
  EXPECT_EQ(AskedAfterTimeout(), (Parts{{0, 3}})) << "and not for the WRITE";
}

TEST_F(SelectiveReader, AsksForAResponseThatASelectiveNakShowsMissing) {
  Read(3);
  node_.Receive(MakeSelectiveNak(kSqPsn + 3, {0}));
  EXPECT_EQ(node_.effects.early, EarlyAction::kNone) << "it is not kept";
  auto packets = node_.PollAll();
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.psn, kSqPsn + 3);
  EXPECT_EQ(AskedAfterTimeout(), (Parts{{0, 3}}));
}

TEST_F(SelectiveReader, GoesBackIfThePeerDoesNotAnswer) {
  Read(4);
  Respond({0, 2});
  for (uint32_t i = 0; i < kMostAsks; ++i) EXPECT_EQ(AskedAfterTimeout(), (Parts{{1, 1}})) << i;
  ASSERT_TRUE(node_.PassTimeout());
  const auto packets = node_.PollAll();
  ASSERT_EQ(packets.size(), 2u);
  EXPECT_EQ(packets[0].tx.ext.reth.length, 3 * kMtu);
  EXPECT_EQ(packets[1].tx.opcode, Opcode::kRcWriteOnly);
  // From now on, it goes back at once.
  Respond({1, 2, 3});
  node_.Receive(MakeAck(kSqPsn + 4));
  ASSERT_EQ(node_.host.send_completions.size(), 2u);
  node_.host.PostSend(WorkOpcode::kRdmaRead, 3 * kMtu);
  node_.Run();
  node_.Receive(MakeReadResponse(Opcode::kRcReadResponseMiddle, kSqPsn + 6, kMtu));
  ASSERT_TRUE(node_.PassTimeout());
  EXPECT_EQ(node_.Poll()->tx.ext.reth.length, 3 * kMtu);
}

TEST_F(SelectiveReader, ThePartsOfAResponseMayEndEarlyOnlyWithSelectiveRepeat) {
  Read(4);
  node_.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, kMtu));
  EXPECT_EQ(node_.qp.state(), QpState::kRts);
  node_.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn + 1, kMtu - 1));
  EXPECT_EQ(node_.qp.state(), QpState::kErr);
  Node other{Tolerant()};
  other.host.PostSend(WorkOpcode::kRdmaRead, 4 * kMtu);
  other.Run();
  other.Receive(MakeReadResponse(Opcode::kRcReadResponseOnly, kSqPsn, kMtu));
  EXPECT_EQ(other.qp.state(), QpState::kErr);
}

TEST_F(SelectiveRequester, IgnoresWhatItDidNotAgreeOn) {
  for (const NodeOptions& options : {Tolerant(), NodeOptions()}) {
    Node other{options};
    Send(other);
    EXPECT_EQ(other.Receive(MakeSelectiveNak(kSqPsn + 2, {0})), DropReason::kUnexpectedOpcode);
    EXPECT_TRUE(other.PollAll().empty());
    QpDebug debug;
    other.qp.Describe(other.now, debug);
    EXPECT_EQ(debug.requester.oldest_unacknowledged, kSqPsn);
    EXPECT_FALSE(debug.selective_repeat);
  }
}

TEST_F(SelectiveRequester, MayAgreeOnItWithThePeer) {
  Node other{Tolerant()};
  for (const bool agreed : {true, false}) {
    EXPECT_EQ(other.Modify(QpState::kReset), ModifyResult::kOk);
    other.BringTo(QpState::kRtr);
    if (agreed) other.qp.UseSelectiveRepeat();
    other.BringTo(QpState::kRts);
    Send(other);
    EXPECT_EQ(other.Receive(MakeSelectiveNak(kSqPsn + 2, {0})),
              agreed ? DropReason::kNone : DropReason::kUnexpectedOpcode);
    QpDebug debug;
    other.qp.Describe(other.now, debug);
    EXPECT_EQ(debug.selective_repeat, agreed);
  }
}

TEST_F(SelectiveRequester, RefusesOtherSyndromesInASelectiveNak) {
  Send(node_);
  for (const Aeth aeth : {Aeth::Ack(Msn(1)), Aeth::RnrNak(Msn(1), 1),
                          Aeth::Nak(Msn(1), NakCode::kRemoteAccessError)}) {
    WirePacket packet = MakeSelectiveNak(kSqPsn + 2, {0});
    packet.tx.ext.aeth = aeth;
    EXPECT_EQ(node_.Receive(packet), DropReason::kUnexpectedOpcode);
    packet.tx.psn = kSqPsn - 1;
    EXPECT_EQ(node_.Receive(packet), DropReason::kStaleAcknowledge);
  }
  EXPECT_TRUE(node_.PollAll().empty());
  EXPECT_EQ(node_.qp.state(), QpState::kRts);
}

}  // namespace
}  // namespace roci::roce
