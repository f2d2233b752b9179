// Two devices' neighbour tables exchange frames; other frames are hand-made.
#include "control/net/neighbours.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "roce/headers.h"

namespace roci::control {
namespace {

constexpr roce::Mac kMacA{{2, 0, 0, 0, 0, 0xA}};
constexpr roce::Mac kMacB{{2, 0, 0, 0, 0, 0xB}};
constexpr roce::Mac kMacC{{2, 0, 0, 0, 0, 0xC}};
constexpr roce::TimeNs kSecond = 1'000'000'000;

std::vector<InterfaceAddress> Addresses(int host) {
  return {*ParseInterfaceAddress("10.0.0." + std::to_string(host) + "/24"),
          *ParseInterfaceAddress("fd00::" + std::to_string(host) + "/64")};
}

struct Node {
  Node(const roce::Mac& mac, int host) : table(mac, Addresses(host), {}, {}), neighbours(table) {}
  void Send(const Frame& frame) { sent.push_back(frame); }
  std::vector<Frame> Take() { return std::exchange(sent, {}); }
  SlowPathReason Receive(const Frame& frame, roce::TimeNs now = 0) {
    return neighbours.HandleFrame(now, frame, [this](const Frame& f) { Send(f); });
  }
  std::optional<roce::Mac> Resolve(roce::TimeNs now, const char* source, const char* target,
                                   uint64_t waiter) {
    return neighbours.Resolve(now, *ParseIp(source), {*ParseIp(target)}, waiter,
                              [this](const Frame& f) { Send(f); });
  }
  void Cancel(const char* target, uint64_t waiter) {
    neighbours.Cancel({*ParseIp(target)}, waiter);
  }
  void Timeout(roce::TimeNs now) {
    neighbours.HandleTimeout(now, [this](const Frame& f) { Send(f); });
  }

  AddressTable table;
  Neighbours neighbours;
  std::vector<Frame> sent;
};

class NeighboursTest : public testing::TestWithParam<bool> {
 protected:
  const char* MineA() const { return GetParam() ? "fd00::1" : "10.0.0.1"; }
  const char* MineB() const { return GetParam() ? "fd00::2" : "10.0.0.2"; }
  Node a_{kMacA, 1};
  Node b_{kMacB, 2};
};
INSTANTIATE_TEST_SUITE_P(Families, NeighboursTest, testing::Bool(),
                         [](const auto& family) { return family.param ? "IPv6" : "IPv4"; });

TEST_P(NeighboursTest, ResolvesAPeer) {
  EXPECT_EQ(a_.Resolve(5, MineA(), MineB(), 77), std::nullopt);
  const std::vector<Frame> questions = a_.Take();
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_EQ(b_.Receive(questions[0]), SlowPathReason::kHandled);
  const std::vector<Frame> replies = b_.Take();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(a_.Receive(replies[0], 9), SlowPathReason::kHandled);
  const auto answers = a_.neighbours.TakeAnswers();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].waiter, 77u);
  EXPECT_TRUE(answers[0].status.ok());
  EXPECT_EQ(answers[0].mac, kMacB);
  EXPECT_EQ(a_.neighbours.NextTimeout(), roce::kNever);
  EXPECT_EQ(a_.Resolve(10, MineA(), MineB(), 78), kMacB);
  EXPECT_EQ(b_.Resolve(10, MineB(), MineA(), 79), kMacA) << "the target has learned the sender";
  EXPECT_TRUE(a_.Take().empty());
}

TEST_P(NeighboursTest, KnowsItself) { EXPECT_EQ(a_.Resolve(0, MineA(), MineA(), 1), kMacA); }

TEST_P(NeighboursTest, GivesUpAfterBoundedTries) {
  ASSERT_EQ(a_.Resolve(0, MineA(), MineB(), 1), std::nullopt);
  ASSERT_EQ(a_.Resolve(0, MineA(), MineB(), 2), std::nullopt);
  uint32_t questions = static_cast<uint32_t>(a_.Take().size());
  roce::TimeNs last = 0;
  while (a_.neighbours.NextTimeout() != roce::kNever) {
    const roce::TimeNs now = a_.neighbours.NextTimeout();
    ASSERT_GT(now, last);
    last = now;
    a_.Timeout(now - 1);
    EXPECT_TRUE(a_.Take().empty()) << "too early";
    a_.Timeout(now);
    questions += static_cast<uint32_t>(a_.Take().size());
  }
  EXPECT_EQ(questions, Neighbours::kMaxTries);
  EXPECT_LT(last, 5 * kSecond);
  const auto answers = a_.neighbours.TakeAnswers();
  ASSERT_EQ(answers.size(), 2u);
  for (const auto& answer : answers) EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status));
  EXPECT_EQ(a_.Resolve(last, MineA(), MineB(), 3), std::nullopt) << "asks anew";
  EXPECT_EQ(a_.Take().size(), 1u);
}

// The peer may have become reachable since the last request: a new waiter does not inherit the
// deadline of an older one, whether that one still waits or was cancelled.
TEST_P(NeighboursTest, EachWaiterHasItsOwnRowOfQuestions) {
  for (const bool is_cancelled : {false, true}) {
    Node a(kMacA, 1);
    ASSERT_EQ(a.Resolve(0, MineA(), MineB(), 1), std::nullopt);
    while (a.neighbours.NextTimeout() < 2 * kSecond) a.Timeout(a.neighbours.NextTimeout());
    if (is_cancelled) a.Cancel(MineB(), 1);
    a.Take();
    ASSERT_EQ(a.Resolve(2 * kSecond, MineA(), MineB(), 2), std::nullopt);
    EXPECT_EQ(a.Take().size(), 1u) << "asks at once";
    uint32_t answered = 0;
    while (a.neighbours.NextTimeout() != roce::kNever) {
      const roce::TimeNs now = a.neighbours.NextTimeout();
      a.Timeout(now);
      for (const auto& answer : a.neighbours.TakeAnswers()) {
        ++answered;
        EXPECT_TRUE(absl::IsDeadlineExceeded(answer.status));
        EXPECT_EQ(now, (answer.waiter == 1 ? 0 : 2 * kSecond) + Neighbours::kPatienceNs);
      }
    }
    EXPECT_EQ(answered, is_cancelled ? 1u : 2u);
    EXPECT_GE(a.Take().size(), Neighbours::kMaxTries - 1);
  }
}

TEST_P(NeighboursTest, WaitersThatComeAndGoMakeNoFloodOfQuestions) {
  for (uint64_t waiter = 0; waiter < 100; ++waiter) {
    a_.Resolve(waiter * Neighbours::kFirstRetryNs / 100, MineA(), MineB(), waiter);
    a_.Cancel(MineB(), waiter);
  }
  EXPECT_EQ(a_.Take().size(), 1u);
  a_.Timeout(a_.neighbours.NextTimeout());
  EXPECT_TRUE(a_.neighbours.entries().empty());
  EXPECT_TRUE(a_.Take().empty());
}

// The control thread asks for the next timeout in each iteration of its loop.
TEST_P(NeighboursTest, ManyAbsentPeersDoNotSlowTheLoop) {
  constexpr uint32_t kPeers = 2000;
  constexpr int kIterations = 1'000'000;
  for (uint32_t i = 0; i < kPeers; ++i) {
    const std::string peer =
        GetParam() ? "fd00::1:" + std::to_string(i + 1) : "10.0.0." + std::to_string(i % 250 + 3);
    a_.Resolve(i, MineA(), peer.c_str(), i + 1);
  }
  const auto begin = std::chrono::steady_clock::now();
  roce::TimeNs next = 0;
  for (int i = 0; i < kIterations; ++i) next = std::min(roce::kNever, a_.neighbours.NextTimeout());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  EXPECT_EQ(next, Neighbours::kFirstRetryNs);
  while (a_.neighbours.NextTimeout() != roce::kNever) a_.Timeout(a_.neighbours.NextTimeout());
  EXPECT_EQ(a_.neighbours.TakeAnswers().size(), kPeers);
  EXPECT_TRUE(a_.neighbours.entries().empty());
}

TEST_P(NeighboursTest, CancelledWaitersAreNotCalled) {
  ASSERT_EQ(a_.Resolve(0, MineA(), MineB(), 1), std::nullopt);
  a_.Cancel(MineB(), 1);
  b_.Receive(a_.Take()[0]);
  a_.Receive(b_.Take()[0]);
  EXPECT_TRUE(a_.neighbours.TakeAnswers().empty());
}

TEST_P(NeighboursTest, EntriesAge) {
  ASSERT_EQ(a_.Resolve(0, MineA(), MineB(), 1), std::nullopt);
  b_.Receive(a_.Take()[0]);
  a_.Receive(b_.Take()[0], 0);
  EXPECT_EQ(a_.Resolve(Neighbours::kLifetimeNs - 1, MineA(), MineB(), 2), kMacB);
  EXPECT_EQ(a_.Resolve(Neighbours::kLifetimeNs, MineA(), MineB(), 3), std::nullopt);
  EXPECT_EQ(a_.Take().size(), 1u);
}

TEST_P(NeighboursTest, LinkDownFlushesTheCacheAndKeepsPendingRequests) {
  ASSERT_EQ(a_.Resolve(0, MineA(), MineB(), 1), std::nullopt);
  const Frame question = a_.Take()[0];
  a_.neighbours.DropResolved();
  b_.Receive(question);
  a_.Receive(b_.Take()[0], 0);
  ASSERT_EQ(a_.neighbours.TakeAnswers().size(), 1u) << "the waiter still waits";
  EXPECT_EQ(a_.Resolve(1, MineA(), MineB(), 2), kMacB);
  a_.neighbours.DropResolved();
  EXPECT_EQ(a_.Resolve(2, MineA(), MineB(), 3), std::nullopt);
  EXPECT_EQ(a_.Take().size(), 1u);
}

TEST_P(NeighboursTest, QuestionsForOthersAreNotAnswered) {
  Node c(roce::Mac{{2, 0, 0, 0, 0, 0xC}}, 3);
  ASSERT_EQ(a_.Resolve(0, MineA(), MineB(), 1), std::nullopt);
  EXPECT_NE(c.Receive(a_.Take()[0]), SlowPathReason::kHandled);
  EXPECT_TRUE(c.Take().empty());
  EXPECT_TRUE(c.neighbours.entries().empty());
}

Frame Echo(bool ipv6, const char* from, const char* to, size_t data) {
  // An echo reply differs from the request only in its type.
  std::vector<std::byte> icmp(8 + data);
  for (size_t i = 8; i < icmp.size(); ++i) icmp[i] = static_cast<std::byte>(i);
  const IcmpPacket reversed{.source = *ParseIp(to),
                            .destination = *ParseIp(from),
                            .hop_limit = 64,
                            .type = 0,
                            .code = 0,
                            .bytes = icmp};
  Frame frame = BuildEchoReply(kMacB, kMacA, reversed);
  const size_t offset = 14 + (ipv6 ? 40 : 20);
  const uint8_t request = ipv6 ? kIcmpv6EchoRequest : kIcmpEchoRequest;
  const int delta = request - static_cast<int>(frame[offset]);
  frame[offset] = std::byte{request};
  // RFC 1624: incremental update of the checksum.
  uint32_t sum = static_cast<uint16_t>(~roce::LoadBe<uint16_t>(&frame[offset + 2]));
  sum += static_cast<uint32_t>(0xFFFF + (delta << 8));
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  roce::StoreBe<uint16_t>(&frame[offset + 2], static_cast<uint16_t>(~sum));
  return frame;
}

TEST_P(NeighboursTest, AnswersPing) {
  for (const size_t size : {0, 1, 56, 1472, 4000}) {
    const Frame request = Echo(GetParam(), MineA(), MineB(), size);
    ASSERT_EQ(b_.Receive(request), SlowPathReason::kHandled) << size;
    const std::vector<Frame> replies = b_.Take();
    ASSERT_EQ(replies.size(), 1u);
    IcmpPacket reply;
    ASSERT_EQ(ParseIcmp(std::span(replies[0]).subspan(14), GetParam(), reply),
              SlowPathReason::kHandled);
    EXPECT_EQ(reply.type, GetParam() ? kIcmpv6EchoReply : kIcmpEchoReply);
    EXPECT_EQ(reply.source, *ParseIp(MineB()));
    EXPECT_EQ(reply.destination, *ParseIp(MineA()));
    ASSERT_EQ(reply.bytes.size(), 8 + size);
    for (size_t i = 8; i < reply.bytes.size(); ++i) {
      ASSERT_EQ(reply.bytes[i], static_cast<std::byte>(i)) << i;
    }
    EXPECT_EQ(roce::EthernetHeader::Load(replies[0].data()).dst, kMacA);
  }
}

TEST_P(NeighboursTest, WrongChecksumIsRefused) {
  Frame request = Echo(GetParam(), MineA(), MineB(), 8);
  request[14 + (GetParam() ? 40 : 20) + 5] ^= std::byte{1};
  EXPECT_EQ(b_.Receive(request), SlowPathReason::kIcmpChecksum);
  EXPECT_TRUE(b_.Take().empty());
}

TEST_P(NeighboursTest, NoTruncatedOrCorruptFrameIsAnsweredOrRemembered) {
  ASSERT_EQ(a_.Resolve(0, MineA(), MineB(), 1), std::nullopt);
  const Frame question = a_.Take()[0];
  for (size_t length = 0; length < (GetParam() ? 86u : 42u); ++length) {
    Node c(kMacB, 2);
    c.Receive(Frame(question.begin(), question.begin() + static_cast<ptrdiff_t>(length)));
    EXPECT_TRUE(c.Take().empty()) << length;
    EXPECT_TRUE(c.neighbours.entries().empty()) << length;
  }
  const uint32_t seed = 20240611;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 20000; ++i) {
    Frame bad = question;
    for (int j = 0; j < 3; ++j) bad[random() % bad.size()] = static_cast<std::byte>(random());
    b_.Receive(bad);
    b_.Take();
  }
  EXPECT_LE(b_.neighbours.entries().size(), Neighbours::kMaxEntries);
}

// Another adapter with the same addresses announces them, or answers a probe.
TEST_P(NeighboursTest, AConflictIsSeenAndTheAddressDefendedNowAndThen) {
  Node twin(kMacB, 1);
  const roce::Gid own = *ParseIp(MineA());
  EXPECT_EQ(a_.neighbours.ConflictOf({own}), nullptr);
  const auto claim = [&](roce::TimeNs now) {
    twin.neighbours.AnnounceOne({own}, [&](const Frame& frame) { twin.Send(frame); });
    for (const Frame& frame : twin.Take()) {
      EXPECT_EQ(a_.Receive(frame, now), SlowPathReason::kAddressConflict);
    }
  };
  claim(kSecond);
  ASSERT_NE(a_.neighbours.ConflictOf({own}), nullptr);
  EXPECT_EQ(a_.neighbours.ConflictOf({own})->mac, kMacB);
  EXPECT_EQ(a_.neighbours.TakeConflicts(), std::vector<roce::NetAddress>{{own}});
  EXPECT_EQ(a_.Take().size(), 1u) << "defended";
  claim(2 * kSecond);
  EXPECT_TRUE(a_.Take().empty()) << "no quarrel";
  EXPECT_TRUE(a_.neighbours.TakeConflicts().empty()) << "told once";
  claim(12 * kSecond);
  EXPECT_EQ(a_.Take().size(), 1u);
  EXPECT_EQ(a_.neighbours.ConflictOf({own})->times, 3u);
  a_.neighbours.Forget({own});
  EXPECT_EQ(a_.neighbours.ConflictOf({own}), nullptr);
}

TEST_P(NeighboursTest, AProbeFindsTheOtherOwnerOfTheAddress) {
  Node twin(kMacB, 1);
  const roce::Gid own = *ParseIp(MineA());
  a_.neighbours.Probe({own}, [&](const Frame& frame) {
    EXPECT_EQ(twin.Receive(frame), SlowPathReason::kHandled);
    EXPECT_NE(b_.Receive(frame), SlowPathReason::kHandled);
  });
  EXPECT_EQ(twin.neighbours.ConflictOf({own}), nullptr) << "a question is no claim";
  const std::vector<Frame> answers = twin.Take();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(a_.Receive(answers[0]), SlowPathReason::kAddressConflict);
  EXPECT_TRUE(b_.Take().empty());
}

TEST(NeighboursIpv6Test, DuplicateAddressProbeIsAnsweredToAll) {
  Node b(kMacB, 2);
  const roce::Gid target = *ParseIp("fd00::2");
  const roce::Gid group = SolicitedNodeGroup(target);
  const Frame probe = BuildNd(MulticastMac(group), kMacA,
                              {.is_solicitation = true,
                               .source = roce::Gid{},
                               .destination = group,
                               .target = target,
                               .link_address = {}});
  EXPECT_EQ(b.Receive(probe), SlowPathReason::kHandled);
  const std::vector<Frame> replies = b.Take();
  ASSERT_EQ(replies.size(), 1u);
  IcmpPacket packet;
  ASSERT_EQ(ParseIcmp(std::span(replies[0]).subspan(14), true, packet), SlowPathReason::kHandled);
  const std::optional<NdMessage> message = ParseNd(packet);
  ASSERT_TRUE(message.has_value());
  EXPECT_FALSE(message->solicited);
  EXPECT_EQ(IpText(message->destination), "ff02::1");
  EXPECT_EQ(message->link_address, kMacB);
}

TEST(NeighboursIpv6Test, HopLimitMustBe255) {
  Node a(kMacA, 1);
  Node b(kMacB, 2);
  a.Resolve(0, "fd00::1", "fd00::2", 1);
  Frame question = a.Take()[0];
  question[14 + 7] = std::byte{254};
  EXPECT_EQ(b.Receive(question), SlowPathReason::kNdMalformed);
}

TEST(NeighboursTest, FindsWhatNeedsNoResolution) {
  Node a(kMacA, 1);
  const auto find = [&](const char* peer, roce::TimeNs now) {
    return a.neighbours.Find(now, {*ParseIp(peer)});
  };
  EXPECT_EQ(find("10.0.0.1", 0), kMacA) << "our own address";
  EXPECT_EQ(find("10.0.0.2", 0), std::nullopt);
  a.Resolve(0, "10.0.0.1", "10.0.0.2", 1);
  EXPECT_EQ(find("10.0.0.2", 0), std::nullopt) << "being resolved";
  Node b(kMacB, 2);
  b.neighbours.Announce([&](const Frame& frame) { a.Receive(frame); });
  EXPECT_EQ(find("10.0.0.2", 0), kMacB);
  EXPECT_EQ(find("10.0.0.2", Neighbours::kLifetimeNs - 1), kMacB);
  EXPECT_EQ(find("10.0.0.2", Neighbours::kLifetimeNs), std::nullopt);
  EXPECT_EQ(a.neighbours.entries().size(), 1u) << "does not ask";
}

TEST(NeighboursTest, TableIsBounded) {
  Node a(kMacA, 1);
  const std::vector<InterfaceAddress> wide = {*ParseInterfaceAddress("10.0.0.1/8")};
  const AddressTable table(kMacA, wide, {}, {});
  Neighbours neighbours(table);
  size_t sent = 0;
  for (uint32_t i = 0; i < Neighbours::kMaxEntries + 10; ++i) {
    roce::Gid peer = *ParseIp("10.1.0.0");
    peer.bytes[14] = static_cast<uint8_t>(i >> 8);
    peer.bytes[15] = static_cast<uint8_t>(i);
    neighbours.Resolve(0, table.At(1)->gid, {peer}, i, [&](const Frame&) { ++sent; });
  }
  EXPECT_EQ(neighbours.entries().size(), Neighbours::kMaxEntries);
  EXPECT_EQ(sent, Neighbours::kMaxEntries);
  const auto answers = neighbours.TakeAnswers();
  ASSERT_EQ(answers.size(), 10u);
  for (const auto& answer : answers) EXPECT_TRUE(absl::IsResourceExhausted(answer.status));
}

TEST(NeighboursTest, AnnouncementsUpdatePeers) {
  Node a(kMacA, 1);
  Node b(kMacB, 2);
  b.Resolve(0, "10.0.0.2", "10.0.0.1", 1);
  b.Resolve(0, "fd00::2", "fd00::1", 2);
  a.neighbours.Announce([&](const Frame& frame) { b.Receive(frame); });
  EXPECT_EQ(b.neighbours.TakeAnswers().size(), 2u);
  EXPECT_EQ(b.Resolve(0, "10.0.0.2", "10.0.0.1", 3), kMacA);
  EXPECT_EQ(b.Resolve(0, "fd00::2", "fd00::1", 4), kMacA);
}

TEST(NeighboursTest, CountsChangesOfWhatItAnswers) {
  Node a(kMacA, 1);
  Node b(kMacB, 2);
  const Node moved(kMacC, 1);
  const roce::NetAddress peer{*ParseIp("10.0.0.1")};
  b.Resolve(0, "10.0.0.2", "10.0.0.1", 1);
  uint64_t before = b.neighbours.changes();
  const auto changed = [&] {
    const uint64_t last = std::exchange(before, b.neighbours.changes());
    return last != before;
  };
  const auto hear = [&](const Node& node) {
    node.neighbours.Announce([&](const Frame& frame) { b.Receive(frame); });
  };
  hear(a);
  EXPECT_TRUE(changed());
  hear(a);
  EXPECT_FALSE(changed());
  hear(moved);
  EXPECT_TRUE(changed());
  EXPECT_EQ(b.Resolve(0, "10.0.0.2", "10.0.0.1", 2), kMacC);
  EXPECT_FALSE(changed());
  b.neighbours.Forget(peer);
  EXPECT_TRUE(changed());
  b.neighbours.Forget(peer);
  EXPECT_FALSE(changed());
  b.neighbours.DropResolved();
  EXPECT_TRUE(changed());
}

std::vector<VlanSettings> VlanSeven(int host) {
  VlanSettings vlan;
  vlan.id = 7;
  vlan.addresses = Addresses(host);
  vlan.egress_qos_map[0] = 2;
  return {vlan};
}

// The same addresses in VLAN 7 and untagged.
class VlanNeighboursTest : public NeighboursTest {
 protected:
  struct VlanNode {
    VlanNode(const roce::Mac& mac, int host)
        : vlans(VlanSeven(host)), table(mac, Addresses(host), {}, {}, vlans), neighbours(table) {}
    SlowPathReason Receive(const Frame& frame) {
      return neighbours.HandleFrame(0, frame, [this](const Frame& f) { sent.push_back(f); });
    }
    std::optional<roce::Mac> Resolve(const char* source, const roce::NetAddress& target) {
      return neighbours.Resolve(0, *ParseIp(source), target, 1,
                                [this](const Frame& f) { sent.push_back(f); });
    }
    std::vector<Frame> Take() { return std::exchange(sent, {}); }
    std::vector<VlanSettings> vlans;
    AddressTable table;
    Neighbours neighbours;
    std::vector<Frame> sent;
  };
  static uint16_t TagOf(const Frame& frame) {
    const auto type = roce::LoadBe<uint16_t>(frame.data() + 12);
    return type == roce::kEtherTypeVlan ? roce::LoadBe<uint16_t>(frame.data() + 14) : uint16_t{0};
  }
  VlanNode c_{kMacA, 1};
  VlanNode d_{kMacB, 2};
};
INSTANTIATE_TEST_SUITE_P(Families, VlanNeighboursTest, testing::Bool(),
                         [](const auto& family) { return family.param ? "IPv6" : "IPv4"; });

TEST_P(VlanNeighboursTest, AsksAndAnswersWithinTheVlan) {
  EXPECT_EQ(c_.Resolve(MineA(), {*ParseIp(MineB()), 7}), std::nullopt);
  const std::vector<Frame> questions = c_.Take();
  ASSERT_EQ(questions.size(), 1u);
  EXPECT_EQ(TagOf(questions[0]), 7 | 2 << 13) << "with the priority of the map";
  EXPECT_EQ(d_.Receive(questions[0]), SlowPathReason::kHandled);
  const std::vector<Frame> replies = d_.Take();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(TagOf(replies[0]), 7 | 2 << 13);
  EXPECT_EQ(c_.Receive(replies[0]), SlowPathReason::kHandled);
  EXPECT_EQ(c_.Resolve(MineA(), {*ParseIp(MineB()), 7}), kMacB);
  EXPECT_EQ(c_.Resolve(MineA(), {*ParseIp(MineB()), 0}), std::nullopt) << "may be another adapter";
  EXPECT_EQ(TagOf(c_.Take().at(0)), 0);
  EXPECT_EQ(d_.Resolve(MineB(), {*ParseIp(MineA()), 7}), kMacA) << "the target has learned it";
  EXPECT_EQ(d_.Resolve(MineB(), {*ParseIp(MineA()), 0}), std::nullopt);
}

TEST_P(VlanNeighboursTest, OtherVlansAreNotOurs) {
  c_.Resolve(MineA(), {*ParseIp(MineB()), 7});
  const Frame question = c_.Take().at(0);
  for (const uint16_t id : {uint16_t{8}, uint16_t{4095}}) {
    Frame frame = question;
    roce::StoreBe<uint16_t>(frame.data() + 14, id);
    EXPECT_EQ(d_.Receive(frame), SlowPathReason::kVlanNotOurs) << id;
  }
  Frame stacked = question;
  stacked.insert(stacked.begin() + 12, question.begin() + 12, question.begin() + 16);
  EXPECT_EQ(d_.Receive(stacked), SlowPathReason::kEtherType);
  roce::StoreBe<uint16_t>(stacked.data() + 12, roce::kEtherTypeProviderVlan);
  EXPECT_EQ(d_.Receive(stacked), SlowPathReason::kEtherType);
  for (size_t length = 0; length < 18; ++length) {
    const Frame cut(question.begin(), question.begin() + static_cast<std::ptrdiff_t>(length));
    EXPECT_EQ(d_.Receive(cut), SlowPathReason::kTruncated) << length;
  }
  EXPECT_TRUE(d_.Take().empty());
  EXPECT_TRUE(d_.neighbours.entries().empty());
}

TEST_P(VlanNeighboursTest, ATagWithoutAnIdIsNoVlan) {
  c_.Resolve(MineA(), {*ParseIp(MineB()), 0});
  Frame question = c_.Take().at(0);
  const Frame tag = {std::byte{0x81}, {}, std::byte{0xA0}, {}};
  question.insert(question.begin() + 12, tag.begin(), tag.end());
  EXPECT_EQ(d_.Receive(question), SlowPathReason::kHandled);
  EXPECT_EQ(TagOf(d_.Take().at(0)), 0);
  EXPECT_EQ(d_.Resolve(MineB(), {*ParseIp(MineA()), 0}), kMacA);
}

}  // namespace
}  // namespace roci::control
