// Recorded RC traffic of Linux's soft-RoCE, and one recording of two hardware NICs: our queue pair
// replaces one side and must send the same packets. roce/deviations.md lists deliberate
// differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "roce/parse.h"
#include "tests/unit/roce/recorded.h"
#include "tests/unit/roce/vectors.h"

namespace roci::roce {
namespace {

// Removes ACKs that no request asked for: a NIC may send them, we do not. Returns how many.
size_t DropUnaskedAnswers(Split& split) {
  std::set<uint32_t> asked;
  for (const Recorded& r : split.requests) {
    if (r.packet.tx.ack_request) asked.insert(r.packet.tx.psn.value());
  }
  return std::erase_if(split.answers,
                       [&](const Recorded& r) { return !asked.contains(r.packet.tx.psn.value()); });
}

const char* const kCleanCaptures[] = {
    "vec-rc_send-v4-mtu256",
    "vec-rc_send-v4-mtu1024",
    "vec-rc_send-v4-mtu4096",
    "vec-rc_write-v4-mtu256",
    "vec-rc_write-v4-mtu1024",
    "vec-rc_write-v4-mtu4096",
    "vec-rc_read-v4-mtu256",
    "vec-rc_read-v4-mtu1024",
    "vec-rc_read-v4-mtu4096",
    "vec-rc_read_pipe-v4",
    "vec-rc_atomic-v4",
    "vec-rc_burst-v4",
    "vec-send_inv-v4",
    "ibv_rc_pingpong-v4",
    "ibv_srq_pingpong-v4",
    "ib_atomic_bw-FETCH_AND_ADD-v4",
    "ib_atomic_bw-CMP_AND_SWAP-v4",
    "rping-v4",
    "rping-16000-v4",
    "rping-read-shortbuf-v4",
    "ucmatose-v4",
    "nfs-rdma-first400",
    kNicToNic,
};

// The number of pairs of queue pairs in a capture.
size_t PairsOf(const std::string& name) {
  return name.starts_with("ibv_srq") || name.starts_with("ucmatose") || name.starts_with("nfs") ? 2
                                                                                                : 1;
}

// Each conversation, once for each side that sends requests in it.
struct Side {
  Conversation recorded;
  Gid asker;
};
std::vector<Side> Sides(const std::vector<Conversation>& conversations) {
  std::vector<Side> sides;
  for (const Conversation& conversation : conversations) {
    for (const Gid& asker : Askers(conversation)) sides.push_back({conversation, asker});
  }
  return sides;
}

TEST(QpVectors, OurResponderAnswersAsTheyDid) {
  for (const char* name : kCleanCaptures) {
    const auto conversations = LoadConversations(name);
    ASSERT_EQ(conversations.size(), PairsOf(name)) << name;
    for (const auto& [recorded, asker] : Sides(conversations)) {
      SCOPED_TRACE(name);
      Split split = SplitBy(recorded, asker);
      if (name == std::string(kNicToNic)) {
        EXPECT_LE(DropUnaskedAnswers(split), 1u);
      }
      NodeOptions options = OptionsFor(recorded, split.requests.front().packet.tx.psn);
      options.uses_srq = std::string(name).starts_with("ibv_srq");
      Node node(options);
      GrantWhatIsNamed(node.host, split.requests);
      std::set<uint64_t> seen_atomics;
      PostReceives(node, 600);
      std::vector<WirePacket> ours;
      for (const Recorded& request : split.requests) {
        FillForRequest(node.host, split.answers, request.packet,
                       PathMtuBytes(node.options.path_mtu), seen_atomics);
        node.Receive(request.packet);
        for (WirePacket& packet : node.PollAll()) ours.push_back(std::move(packet));
      }
      // A capture of Linux may end before the last responses.
      if (name == std::string(kNicToNic)) {
        EXPECT_EQ(ours.size(), split.answers.size());
      }
      ASSERT_GE(ours.size(), split.answers.size());
      EXPECT_LE(ours.size(), split.answers.size() + 4);
      for (size_t i = 0; i < split.answers.size(); ++i) {
        ExpectSameAnswer(ours[i], split.answers[i].packet);
        if (testing::Test::HasFailure()) {
          FAIL() << "answer " << i;
        }
      }
    }
  }
}

TEST(QpVectors, OurRequesterAsksAsTheyDidAndTakesTheAnswers) {
  for (const char* name : kCleanCaptures) {
    for (const auto& [recorded, asker] : Sides(LoadConversations(name))) {
      SCOPED_TRACE(name);
      const Split split = SplitBy(recorded, asker);
      Node node(OptionsFor(recorded, split.requests.front().packet.tx.psn));
      PostFromRequests(node, split.requests);
      const size_t posted = node.host.sends.size();
      node.Work();
      size_t compared = 0;
      for (const Recorded& r : recorded) {
        const bool is_request = r.packet.info().is_request;
        if (is_request && r.src == asker) {
          const auto ours = node.Poll();
          ASSERT_TRUE(ours.has_value()) << "request " << compared;
          ExpectSameRequest(*ours, r.packet);
          if (testing::Test::HasFailure()) {
            FAIL() << "request " << compared;
          }
          ++compared;
        } else if (!is_request && r.src != asker) {
          EXPECT_EQ(node.Receive(r.packet), DropReason::kNone);
        }
      }
      EXPECT_EQ(compared, split.requests.size());
      const std::string capture = name;
      const bool ends_in_nak = capture == "vec-send_inv-v4";
      for (size_t i = 0; i < node.host.send_completions.size(); ++i) {
        const bool is_last = i + 1 == posted;
        EXPECT_EQ(node.host.send_completions[i].status, ends_in_nak && is_last
                                                            ? CompletionStatus::kRemoteAccessError
                                                            : CompletionStatus::kSuccess);
      }
      EXPECT_EQ(node.host.count(QpCounter::kRetransmittedPackets), 0u);
      // Everything completed, except in captures that end early.
      if (capture == kNicToNic || (capture.starts_with("vec-") && !capture.ends_with("pipe-v4"))) {
        EXPECT_EQ(node.host.send_completions.size(), posted);
      }
    }
  }
}

// The NICs' packets in the two tests above have a reserved bit of the BTH set. The parser ignores
// the bit, and the ICRC masks its byte.
TEST(QpVectors, NicsSetAReservedBit) {
  constexpr size_t kByte4OfBth = 14 + 20 + 8 + 4;
  size_t requests = 0;
  for (const NamedFrame& frame : ReadPcap(CaptureFile(kNicToNic))) {
    Packet packet;
    if (ParsePacket(frame.bytes, packet) != DropReason::kNone) continue;
    if (!packet.info->is_request) continue;
    ++requests;
    EXPECT_EQ(frame.bytes[kByte4OfBth] & std::byte{0x3F}, std::byte{16}) << frame.name;
  }
  EXPECT_EQ(requests, 68u);
  EXPECT_EQ(Load(kNicToNic).size(), 105u);
}

}  // namespace
}  // namespace roci::roce
