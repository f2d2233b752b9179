// ECN marks and CNPs at a queue pair: which CNPs are sent, and which packets are throttled.
#include <gtest/gtest.h>

#include <initializer_list>

#include "roce/frame.h"
#include "roce/parse.h"
#include "tests/unit/roce/qp_host.h"

namespace roci::roce {
namespace {

constexpr uint32_t kMtu = 256;
constexpr TimeNs kTimeoutNs = 4096ull << 14;

struct Controlled {
  explicit Controlled(NodeOptions options = {}) : node(With(options)) {}
  NodeOptions With(NodeOptions options) {
    port.parameters.line_rate_kbps = 1'000'000;
    port.parameters.min_rate_kbps = 1'000;
    port.parameters.burst_bytes = 1;
    dcqcn = Dcqcn(&port);
    options.congestion = &dcqcn;
    return options;
  }
  CongestionPort port;
  Dcqcn dcqcn;
  Node node;
};

WirePacket MakeCnp() {
  WirePacket cnp;
  cnp.tx.opcode = Opcode::kCnp;
  cnp.tx.becn = true;
  cnp.tx.dest_qpn = kLocalQpn;
  return cnp;
}

DropReason ReceiveMarked(Node& node, const WirePacket& packet) {
  Packet view = packet.View();
  view.traffic_class = kEcnCongestionExperienced;
  return node.Receive(view);
}

// Throttles the node to the minimum rate, 1 Mb/s: a packet of `kMtu` bytes takes milliseconds.
void Throttle(Node& node) {
  for (int i = 0; i < 64; ++i) {
    node.now += 5'000;
    EXPECT_EQ(node.Receive(MakeCnp()), DropReason::kNone);
  }
}

uint32_t ThrottledKbps(const Node& node) {
  QpDebug debug;
  node.qp.Describe(node.now, debug);
  return debug.throttled_to_kbps;
}

// ---- Notification point

TEST(QpCongestion, AMarkedRequestIsAnsweredByANotification) {
  Controlled c;
  EXPECT_EQ(ReceiveMarked(c.node, MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8)),
            DropReason::kNone);
  const std::vector<WirePacket> out = c.node.PollAll();
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].tx.opcode, Opcode::kCnp);
  EXPECT_TRUE(out[0].tx.becn);
  EXPECT_FALSE(out[0].tx.ack_request);
  EXPECT_EQ(out[0].tx.dest_qpn, kPeerQpn);
  EXPECT_EQ(out[0].tx.psn, Psn());
  EXPECT_TRUE(out[0].payload.empty());
  EXPECT_EQ(out[1].tx.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(c.node.host.count(QpCounter::kMarkedPackets), 1u);
  EXPECT_EQ(c.node.host.count(QpCounter::kCnpsSent), 1u);
}

TEST(QpCongestion, WithoutAMarkThereIsNoNotification) {
  Controlled c;
  for (const uint32_t ecn : {0u, 1u, 2u}) {
    Packet view;
    const WirePacket write = MakeWrite(Opcode::kRcWriteOnly, kRqPsn + ecn, 8, 8);
    view = write.View();
    view.traffic_class = static_cast<uint8_t>(0xB8 | ecn);
    EXPECT_EQ(c.node.Receive(view), DropReason::kNone);
    for (const WirePacket& packet : c.node.PollAll()) EXPECT_NE(packet.tx.opcode, Opcode::kCnp);
    c.node.now += 1'000'000;
  }
  EXPECT_EQ(c.node.host.count(QpCounter::kMarkedPackets), 0u);
}

TEST(QpCongestion, OneNotificationInAnInterval) {
  Controlled c;
  uint32_t cnps = 0;
  const TimeNs end = c.node.now + 10 * uint64_t{c.port.parameters.cnp_interval_ns};
  for (uint32_t i = 0; c.node.now < end; ++i) {
    ReceiveMarked(c.node, MakeWrite(Opcode::kRcWriteOnly, kRqPsn + i, 8, 8));
    for (const WirePacket& packet : c.node.PollAll()) cnps += packet.tx.opcode == Opcode::kCnp;
    c.node.now += 1'000;
  }
  EXPECT_EQ(cnps, 10u);
  EXPECT_EQ(c.node.host.count(QpCounter::kMarkedPackets), 500u);
}

TEST(QpCongestion, MarkedAcknowledgementsAreCountedOnly) {
  Controlled c;
  c.node.host.PostSend(WorkOpcode::kSend, 8);
  c.node.Run();
  ReceiveMarked(c.node, MakeAck(kSqPsn));
  EXPECT_TRUE(c.node.PollAll().empty());
  EXPECT_EQ(c.node.host.count(QpCounter::kMarkedPackets), 1u);
  EXPECT_EQ(c.node.host.count(QpCounter::kCnpsSent), 0u);
}

TEST(QpCongestion, NothingIsSentWhereItIsOff) {
  Node node;
  ReceiveMarked(node, MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  for (const WirePacket& packet : node.PollAll()) EXPECT_NE(packet.tx.opcode, Opcode::kCnp);
  EXPECT_EQ(node.host.count(QpCounter::kMarkedPackets), 1u);
  EXPECT_EQ(node.Receive(MakeCnp()), DropReason::kNone);
  EXPECT_EQ(node.host.count(QpCounter::kCnpsIgnored), 1u);
  EXPECT_EQ(node.host.count(QpCounter::kCnpsHandled), 0u);
}

TEST(QpCongestion, AQueuePairInErrorOwesNoNotification) {
  Controlled c;
  ReceiveMarked(c.node, MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  ASSERT_EQ(c.node.Modify(QpState::kErr), ModifyResult::kOk);
  EXPECT_TRUE(c.node.PollAll().empty());
  EXPECT_EQ(c.node.Receive(MakeCnp()), DropReason::kNone);
  EXPECT_EQ(c.node.host.count(QpCounter::kCnpsIgnored), 1u);
}

NodeOptions Datagrams() {
  NodeOptions options;
  options.type = QpType::kUd;
  return options;
}

WirePacket MakeDatagram(uint32_t qkey) {
  WirePacket packet;
  packet.tx.opcode = Opcode::kUdSendOnly;
  packet.tx.dest_qpn = kLocalQpn;
  packet.tx.ext.deth = {.qkey = qkey, .src_qpn = Qpn(0x4711)};
  return packet;
}

// The CNP is sent whether or not a receive is posted.
TEST(QpCongestion, AMarkedDatagramIsAnsweredToItsSource) {
  Controlled c(Datagrams());
  ReceiveMarked(c.node, MakeDatagram(c.node.qp.attributes().qkey));
  EXPECT_TRUE(c.node.effects.cnp_to_source);
  const std::vector<WirePacket> out = c.node.PollAll();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].polled.kind, Polled::Kind::kCnp);
  EXPECT_EQ(out[0].tx.opcode, Opcode::kCnp);
  EXPECT_EQ(out[0].tx.dest_qpn, Qpn(0x4711));
  // The next CNP is sent only after the interval.
  ReceiveMarked(c.node, MakeDatagram(c.node.qp.attributes().qkey));
  EXPECT_FALSE(c.node.effects.cnp_to_source);
  EXPECT_TRUE(c.node.PollAll().empty());
}

// The owner of the queue pair has the path to the source of the pending CNP only.
TEST(QpCongestion, ANotificationThatWaitsKeepsItsDestination) {
  Controlled c(Datagrams());
  const uint32_t qkey = c.node.qp.attributes().qkey;
  ReceiveMarked(c.node, MakeDatagram(qkey));
  c.node.now += 1'000'000;
  WirePacket other = MakeDatagram(qkey);
  other.tx.ext.deth.src_qpn = Qpn(0x4712);
  ReceiveMarked(c.node, other);
  EXPECT_FALSE(c.node.effects.cnp_to_source);
  const std::vector<WirePacket> out = c.node.PollAll();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].tx.dest_qpn, Qpn(0x4711));
}

TEST(QpCongestion, DatagramsOfOthersAndOfGroupsAreNotAnswered) {
  Controlled c(Datagrams());
  const uint32_t qkey = c.node.qp.attributes().qkey;
  EXPECT_EQ(ReceiveMarked(c.node, MakeDatagram(qkey + 1)), DropReason::kQkey);
  WirePacket group = MakeDatagram(qkey);
  group.tx.dest_qpn = kMulticastQpn;
  ReceiveMarked(c.node, group);
  EXPECT_FALSE(c.node.effects.cnp_to_source);
  EXPECT_TRUE(c.node.PollAll().empty());
  EXPECT_EQ(c.node.host.count(QpCounter::kMarkedPackets), 2u);
}

TEST(QpCongestion, DatagramsAreNotThrottled) {
  Controlled c(Datagrams());
  EXPECT_EQ(c.node.Receive(MakeCnp()), DropReason::kNone);
  EXPECT_EQ(c.node.host.count(QpCounter::kCnpsIgnored), 1u);
  EXPECT_EQ(ThrottledKbps(c.node), 0u);
}

TEST(QpCongestion, ANotificationWithoutTheBitIsIgnored) {
  Controlled c;
  WirePacket cnp = MakeCnp();
  cnp.tx.becn = false;
  EXPECT_EQ(c.node.Receive(cnp), DropReason::kNone);
  EXPECT_EQ(c.node.host.count(QpCounter::kCnpsIgnored), 1u);
  EXPECT_EQ(ThrottledKbps(c.node), 0u);
}

// ---- Reaction point

TEST(QpCongestion, ANotificationHalvesTheRateOfRequests) {
  Controlled c;
  c.node.Receive(MakeCnp());
  EXPECT_EQ(c.node.host.count(QpCounter::kCnpsHandled), 1u);
  EXPECT_EQ(ThrottledKbps(c.node), 500'000u);
  // 314 bytes and headers at 500 Mb/s take 5 us each.
  for (int i = 0; i < 10; ++i) c.node.host.PostSend(WorkOpcode::kSend, kMtu);
  const TimeNs start = c.node.now;
  size_t sent = c.node.Run().size();
  while (sent < 10) {
    ASSERT_FALSE(c.node.qp.HasTransmit());
    ASSERT_TRUE(c.node.PassTimeout());
    sent += c.node.PollAll().size();
  }
  const double took_us = static_cast<double>(c.node.now - start) / 1000;
  EXPECT_NEAR(took_us, 9 * 314 * 8 / 500.0, 5);
}

TEST(QpCongestion, ThrottledRequestsAskForAnAcknowledgementEach) {
  Controlled c;
  Throttle(c.node);
  c.node.host.PostSend(WorkOpcode::kSend, 4 * kMtu);
  for (const WirePacket& packet : c.node.Run()) EXPECT_TRUE(packet.tx.ack_request);
}

TEST(QpCongestion, DataOfReadsIsHeldBackToo) {
  Controlled c;
  Throttle(c.node);
  ASSERT_EQ(c.node.Receive(MakeReadRequest(kRqPsn, 3 * kMtu)), DropReason::kNone);
  const TimeNs start = c.node.now;
  std::vector<WirePacket> out = c.node.PollAll();
  EXPECT_EQ(out.size(), 1u);
  EXPECT_FALSE(c.node.qp.HasTransmit());
  while (out.size() < 3) {
    ASSERT_TRUE(c.node.PassTimeout());
    for (WirePacket& packet : c.node.PollAll()) out.push_back(std::move(packet));
  }
  EXPECT_EQ(out[2].tx.opcode, Opcode::kRcReadResponseLast);
  EXPECT_GT(c.node.now - start, 2'000'000u);
}

TEST(QpCongestion, AcknowledgementsAndAtomicAnswersDoNotWait) {
  Controlled c;
  Throttle(c.node);
  c.node.host.PostSend(WorkOpcode::kSend, 4 * kMtu);
  ASSERT_FALSE(c.node.Run().empty());
  ASSERT_FALSE(c.node.qp.HasTransmit());
  c.node.Receive(MakeWrite(Opcode::kRcWriteOnly, kRqPsn, 8, 8));
  ASSERT_TRUE(c.node.qp.HasTransmit());
  std::vector<WirePacket> out = c.node.PollAll();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].tx.opcode, Opcode::kRcAcknowledge);
  c.node.Receive(MakeFetchAdd(kRqPsn + 1, 1));
  out = c.node.PollAll();
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].tx.opcode, Opcode::kRcAtomicAcknowledge);
}

TEST(QpCongestion, UnreliableRequestsAreReportedWhileOthersWait) {
  NodeOptions options;
  options.type = QpType::kUc;
  Controlled c(options);
  Throttle(c.node);
  c.node.host.PostSend(WorkOpcode::kSend, 8);
  c.node.host.PostSend(WorkOpcode::kSend, 8);
  EXPECT_EQ(c.node.Run().size(), 1u);
  EXPECT_EQ(c.node.host.send_completions.size(), 1u);
  ASSERT_TRUE(c.node.PassTimeout());
  EXPECT_EQ(c.node.PollAll().size(), 1u);
}

TEST(QpCongestion, TheLowerOfBothLimitsHolds) {
  for (const uint32_t own_kbps : {200u, 100'000u}) {
    Controlled c;
    c.node.attributes.rate_limit_kbps = own_kbps;
    c.node.attributes.rate_burst_bytes = 1;
    ASSERT_EQ(c.node.Modify(QpState::kRts, kAttrRateLimit), ModifyResult::kOk);
    Throttle(c.node);  // 1 Mb/s
    for (int i = 0; i < 3; ++i) c.node.host.PostSend(WorkOpcode::kSend, kMtu);
    size_t sent = c.node.Run().size();
    const TimeNs start = c.node.now;
    while (sent < 3) {
      ASSERT_TRUE(c.node.PassTimeout());
      sent += c.node.PollAll().size();
      if (c.node.now - start > 1'000'000'000) break;
    }
    const uint64_t at_limit_ns = 2 * 314ull * 8'000'000 / std::min(own_kbps, 1'000u);
    EXPECT_GE(c.node.now - start, at_limit_ns / 2) << own_kbps;
  }
}

TEST(QpCongestion, TheRateRecoversAndNothingIsLeftBehind) {
  Controlled c;
  Throttle(c.node);
  EXPECT_EQ(ThrottledKbps(c.node), c.port.parameters.min_rate_kbps);
  c.node.now += 2'000'000'000;
  EXPECT_EQ(ThrottledKbps(c.node), 0u);
  for (int i = 0; i < 50; ++i) c.node.host.PostSend(WorkOpcode::kSend, kMtu);
  EXPECT_EQ(c.node.Run().size(), 50u);
}

TEST(QpCongestion, AResetForgets) {
  Controlled c;
  Throttle(c.node);
  ASSERT_EQ(c.node.Modify(QpState::kReset), ModifyResult::kOk);
  c.node.BringTo(QpState::kRts);
  EXPECT_EQ(ThrottledKbps(c.node), 0u);
  EXPECT_EQ(c.dcqcn.rate_kbps(), 1'000'000u);
}

// ---- Timers under congestion control

TEST(QpCongestion, TimersGrowWithSilenceAndAreNeverShorterThanAskedFor) {
  NodeOptions options;
  options.retry_count = 7;
  Controlled c(options);
  c.node.host.PostSend(WorkOpcode::kSend, 8);
  c.node.Run();
  for (const uint64_t factor : {1, 2, 2, 2}) {
    ASSERT_EQ(c.node.qp.NextTimeout(), c.node.now + factor * kTimeoutNs);
    ASSERT_TRUE(c.node.PassTimeout());
    ASSERT_EQ(c.node.PollAll().size(), 1u);
  }
  // A late ACK keeps the longer timeout, prompt ACKs restore the original one.
  c.node.host.PostSend(WorkOpcode::kSend, 8);
  c.node.host.PostSend(WorkOpcode::kSend, 8);
  c.node.host.PostSend(WorkOpcode::kSend, 8);
  c.node.host.PostSend(WorkOpcode::kSend, 8);
  c.node.Run();
  c.node.now += kTimeoutNs;
  c.node.Receive(MakeAck(kSqPsn));
  c.node.Run();
  EXPECT_EQ(c.node.qp.NextTimeout(), c.node.now + 2 * kTimeoutNs);
  uint32_t acked = 1;
  for (const uint64_t factor : {1, 1, 1}) {
    c.node.now += 1000;
    c.node.Run();  // the timeouts have narrowed the window
    c.node.Receive(MakeAck(kSqPsn + acked++));
    EXPECT_EQ(c.node.qp.NextTimeout(), c.node.now + factor * kTimeoutNs);
  }
}

// ---- The window under congestion control

NodeOptions OfWindow(uint32_t packets) {
  NodeOptions options;
  options.limits.window_packets = packets;
  options.limits.ack_every_packets = static_cast<uint16_t>(packets);
  return options;
}

// Sends up to the end of the window; its last packet must request an ACK.
size_t Sent(Node& node) {
  const std::vector<WirePacket> out = node.PollAll();
  EXPECT_TRUE(!out.empty() && out.back().tx.ack_request);
  return out.size();
}

TEST(QpCongestion, ALossNarrowsTheWindowWhichWidensWithWhatIsAcknowledged) {
  Controlled c(OfWindow(16));
  uint32_t acked = 0;
  const auto acknowledge = [&](size_t packets) {
    acked += static_cast<uint32_t>(packets);
    c.node.Receive(MakeAck(kSqPsn + acked - 1));
  };
  const auto expect_windows = [&](std::initializer_list<size_t> windows) {
    for (const size_t window : windows) {
      ASSERT_EQ(Sent(c.node), window);
      acknowledge(window);
    }
  };
  c.node.host.PostSend(WorkOpcode::kSend, 200 * kMtu);
  EXPECT_EQ(Sent(c.node), 16u);
  // The packets behind the lost one may still fill a queue, so it is retransmitted alone.
  acked = 3;
  c.node.Receive(MakeNak(kSqPsn + 3, NakCode::kPsnSequenceError));
  EXPECT_EQ(Sent(c.node), 1u);
  // A repeated NAK reports the same loss.
  c.node.Receive(MakeNak(kSqPsn + 3, NakCode::kPsnSequenceError));
  EXPECT_TRUE(c.node.PollAll().empty());
  acknowledge(1);
  expect_windows({2, 4, 8, 9, 10});
  EXPECT_EQ(Sent(c.node), 11u);
  acknowledge(1);  // 1 of 11: too few to widen the window
  EXPECT_EQ(Sent(c.node), 1u);
  // Two timeouts in a row, without an ACK between them.
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(c.node.PassTimeout());
    EXPECT_EQ(Sent(c.node), 1u);
  }
  acknowledge(1);
  expect_windows({2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 16});
}

TEST(QpCongestion, WithoutCongestionControlTheWindowIsFixed) {
  Node node(OfWindow(16));
  node.host.PostSend(WorkOpcode::kSend, 100 * kMtu);
  EXPECT_EQ(Sent(node), 16u);
  node.Receive(MakeNak(kSqPsn + 3, NakCode::kPsnSequenceError));
  EXPECT_EQ(Sent(node), 16u);
  ASSERT_TRUE(node.PassTimeout());
  EXPECT_EQ(Sent(node), 16u);
}

TEST(QpCongestion, WithoutCongestionControlTimersAreFixed) {
  Node node;
  node.host.PostSend(WorkOpcode::kSend, 8);
  node.Run();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(node.qp.NextTimeout(), node.now + kTimeoutNs);
    ASSERT_TRUE(node.PassTimeout());
    ASSERT_EQ(node.PollAll().size(), 1u);
  }
}

// ---- On the wire

TEST(QpCongestion, NotificationsHaveAClassOfTheirOwnAndCannotBeMarked) {
  for (const int kind : {0, 1, 2, 3}) {
    const bool ipv6 = (kind & 1) != 0;
    Path path;
    path.has_vlan = (kind & 2) != 0;
    path.vlan_tci = 2 << VlanTag::kPriorityShift | 77;
    const auto address = [&](uint8_t last) {
      if (!ipv6) return Gid::FromIpv4(Ipv4{{10, 0, 0, last}});
      Gid gid;
      gid.bytes[0] = 0xFD;
      gid.bytes[15] = last;
      return gid;
    };
    path.src_gid = address(1);
    path.dst_gid = address(2);
    path.traffic_class = 26 << 2 | kEcnCapable;
    path.flow_label = ipv6 ? 0xABCDE : 0;
    const FrameTemplate data(path);
    TxPacket cnp;
    cnp.opcode = Opcode::kCnp;
    cnp.becn = true;
    cnp.dest_qpn = kPeerQpn;
    std::array<std::byte, kMaxFrameBytes> bytes;
    const uint32_t length = EncodeFrame(data.ForNotifications(48, 6), cnp,
                                        static_cast<const std::byte*>(nullptr), 0, bytes.data());
    EXPECT_EQ(length, (ipv6 ? 54u : 34u) + (path.has_vlan ? 4 : 0) + 8 + 12 + 16 + 4);
    Packet packet;
    ASSERT_EQ(ParsePacket({bytes.data(), length}, packet), DropReason::kNone);
    EXPECT_EQ(packet.opcode, Opcode::kCnp);
    EXPECT_EQ(packet.traffic_class, 48 << 2);
    EXPECT_EQ(packet.has_vlan, path.has_vlan);
    if (path.has_vlan) {
      EXPECT_EQ(packet.vlan_tci, 6 << VlanTag::kPriorityShift | 77);
    }
    EXPECT_EQ(packet.flow_label, path.flow_label);
    EXPECT_TRUE(packet.becn);
    EXPECT_FALSE(packet.mig_req);
    EXPECT_EQ(packet.pkey, 0xFFFF);
    EXPECT_EQ(packet.dest_qpn, kPeerQpn);
    EXPECT_EQ(packet.src_gid, path.src_gid);
  }
}

}  // namespace
}  // namespace roci::roce
