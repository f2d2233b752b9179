// Recorded RC errors of Linux's soft-RoCE: the responses of our queue pair, and its handling of
// Linux's responses. roce/deviations.md lists deliberate differences.
#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/roce/recorded.h"

namespace roci::roce {
namespace {

TEST(QpVectors, AccessFaultsAreAnsweredAsLinuxDid) {
  for (const char* name : {"vec-nak_access_write-v4", "vec-nak_access_read-v4"}) {
    SCOPED_TRACE(name);
    const auto recorded = Load(name);
    ASSERT_EQ(recorded.size(), 2u);
    Node node(OptionsFor(recorded, recorded[0].packet.tx.psn));
    node.Receive(recorded[0].packet);  // no key grants any memory
    const auto answers = node.PollAll();
    ASSERT_EQ(answers.size(), 1u);
    ExpectSameAnswer(answers[0], recorded[1].packet);

    Node asker(OptionsFor(recorded, recorded[0].packet.tx.psn));
    PostFromRequests(asker, {recorded[0]});
    EXPECT_EQ(asker.Run().size(), 1u);
    asker.Receive(recorded[1].packet);
    ASSERT_EQ(asker.host.send_completions.size(), 1u);
    EXPECT_EQ(asker.host.send_completions[0].status, CompletionStatus::kRemoteAccessError);
  }
}

TEST(QpVectors, SequenceGapIsAnsweredAsLinuxDid) {
  const auto recorded = Load("vec-psn_nak-v4");
  const Recorded& nak = recorded[1];
  Node node(OptionsFor(recorded, nak.packet.tx.psn));  // the PSN that Linux expected
  PostReceives(node, 1);
  std::vector<WirePacket> answers;
  for (const Recorded& r : recorded) {
    if (!r.packet.info().is_request) continue;
    node.Receive(r.packet);
    for (auto& packet : node.PollAll()) answers.push_back(packet);
  }
  ASSERT_EQ(answers.size(), 1u);  // one NAK for all three
  ExpectSameAnswer(answers[0], nak.packet);
}

TEST(QpVectors, DuplicatesAreAcknowledgedEachTimeAsLinuxDid) {
  const auto recorded = Load("vec-dup-v4");
  Node node(OptionsFor(recorded, recorded[0].packet.tx.psn + 1));
  for (const Recorded& r : recorded) {
    if (!r.packet.info().is_request) continue;
    node.Receive(r.packet);
    const auto answers = node.PollAll();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].tx.opcode, Opcode::kRcAcknowledge);
    EXPECT_EQ(answers[0].tx.ext.aeth.kind(), AethKind::kAck);
  }
  EXPECT_TRUE(node.host.recv_completions.empty());
}

TEST(QpVectors, NotReadyIsAnsweredAsLinuxDid) {
  const auto recorded = Load("vec-rnr-v4");
  NodeOptions options = OptionsFor(recorded, recorded[0].packet.tx.psn);
  options.min_rnr_timer = 12;
  Node node(options);
  // Linux sends another NAK for the packets that follow, we do not: leave it out.
  std::vector<WirePacket> theirs, ours;
  size_t requests = 0;
  for (const Recorded& r : recorded) requests += r.packet.info().is_request ? 1 : 0;
  for (const Recorded& r : recorded) {
    if (!r.packet.info().is_request) {
      if (r.packet.tx.ext.aeth.syndrome != 0x60) theirs.push_back(r.packet);
      continue;
    }
    if (requests-- == 2) PostReceives(node, 1);
    node.Receive(r.packet);
    for (auto& packet : node.PollAll()) ours.push_back(packet);
  }
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) ExpectSameAnswer(ours[i], theirs[i]);
  EXPECT_EQ(node.host.recv_completions.size(), 1u);
}

TEST(QpVectors, OurRequesterSurvivesLinuxNotBeingReady) {
  const auto recorded = Load("vec-rnr-v4");
  const Gid asker = recorded[0].src;
  NodeOptions options = OptionsFor(recorded, recorded[0].packet.tx.psn);
  options.rnr_retry = 7;
  Node node(options);
  PostFromRequests(node, {recorded[0], recorded[2]});
  node.Run();
  for (const Recorded& r : recorded) {
    if (r.src == asker) continue;
    node.Receive(r.packet);
    if (r.packet.tx.ext.aeth.syndrome == 0x60) {
      // A sequence NAK does not end the RNR wait.
      EXPECT_FALSE(node.qp.HasTransmit());
      node.PassTimeout();
      EXPECT_EQ(node.PollAll().size(), 2u);
    }
  }
  ASSERT_EQ(node.host.send_completions.size(), 1u);
  EXPECT_EQ(node.host.send_completions[0].status, CompletionStatus::kSuccess);
}

TEST(QpVectors, GivingUpOnAPeerThatIsNotReadyAsLinuxDid) {
  const auto recorded = Load("vec-rnr_exc-v4");
  ASSERT_EQ(recorded.size(), 4u);
  NodeOptions options = OptionsFor(recorded, recorded[0].packet.tx.psn);
  options.min_rnr_timer = 12;
  options.rnr_retry = 1;
  Node responder(options), requester(options);
  PostFromRequests(requester, {recorded[0]});
  requester.Work();
  for (size_t i = 0; i < recorded.size(); i += 2) {
    const auto request = requester.Poll();
    ASSERT_TRUE(request.has_value());
    ExpectSameRequest(*request, recorded[i].packet);
    responder.Receive(recorded[i].packet);
    const auto answers = responder.PollAll();
    ASSERT_EQ(answers.size(), 1u);
    ExpectSameAnswer(answers[0], recorded[i + 1].packet);
    EXPECT_TRUE(requester.host.send_completions.empty());
    requester.Receive(recorded[i + 1].packet);
    if (i == 0) requester.PassTimeout();
  }
  EXPECT_FALSE(requester.Poll().has_value());
  ASSERT_EQ(requester.host.send_completions.size(), 1u);
  EXPECT_EQ(requester.host.send_completions[0].status, CompletionStatus::kRnrRetryExceeded);
}

// Linux responds with a remote operational error, the IBTA requires an invalid request error
// (deviations.md). Either moves the peer's queue pair to ERR.
TEST(QpVectors, AMessageThatIsTooLongIsRefusedAsByLinux) {
  const auto recorded = Load("vec-nak_len-v4");
  ASSERT_EQ(recorded.size(), 2u);
  Node responder(OptionsFor(recorded, recorded[0].packet.tx.psn));
  responder.host.PostRecv(recorded[0].packet.tx.payload_length - 1);
  responder.Receive(recorded[0].packet);
  const auto answers = responder.PollAll();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].tx.psn, recorded[1].packet.tx.psn);
  EXPECT_EQ(answers[0].tx.ext.aeth.msn, recorded[1].packet.tx.ext.aeth.msn);
  EXPECT_EQ(answers[0].tx.ext.aeth.kind(), AethKind::kNak);
  EXPECT_EQ(answers[0].tx.ext.aeth.nak_code(), NakCode::kInvalidRequest);
  EXPECT_EQ(recorded[1].packet.tx.ext.aeth.nak_code(), NakCode::kRemoteOperationalError);
  ASSERT_EQ(responder.host.recv_completions.size(), 1u);
  EXPECT_EQ(responder.host.recv_completions[0].status, CompletionStatus::kLocalLengthError);

  Node requester(OptionsFor(recorded, recorded[0].packet.tx.psn));
  PostFromRequests(requester, {recorded[0]});
  EXPECT_EQ(requester.Run().size(), 1u);
  requester.Receive(recorded[1].packet);
  ASSERT_EQ(requester.host.send_completions.size(), 1u);
  EXPECT_EQ(requester.host.send_completions[0].status, CompletionStatus::kRemoteOperationError);
}

}  // namespace
}  // namespace roci::roce
