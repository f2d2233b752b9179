// What stands between a lane and its port: filters, impairments by a seed, held frames, captures.
#include "dataplane/link_tap.h"

#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "roce/frame.h"
#include "roce/parse.h"
#include "tests/unit/dataplane/environment.h"

namespace roci::testing {
namespace {

using dataplane::Impairment;
using dataplane::ImpairmentSettings;
using dataplane::LinkDirection;
using dataplane::LinkTap;
using Bytes = std::vector<std::byte>;

Bytes Packet(roce::Opcode opcode, uint32_t qpn, bool is_ipv6 = false, bool has_vlan = false) {
  roce::Path path;
  path.src_gid = is_ipv6 ? roce::Gid{{0xFD, 1}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 1}});
  path.dst_gid = is_ipv6 ? roce::Gid{{0xFD, 2}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 2}});
  path.has_vlan = has_vlan;
  path.traffic_class = 2;  // ECT(0)
  const roce::FrameTemplate tmpl(path);
  roce::TxPacket tx;
  tx.opcode = opcode;
  tx.dest_qpn = roce::Qpn(qpn);
  tx.ext.deth.src_qpn = roce::Qpn(0x77);
  Bytes frame(roce::FrameBytes(tmpl, tx));
  roce::EncodeFrame(tmpl, tx, static_cast<const std::byte*>(nullptr), 0, frame.data());
  return frame;
}

TEST(FrameFilterTest, ChoosesByQueuePairAndOpcode) {
  const Bytes send = Packet(roce::Opcode::kRcSendOnly, 5);
  Bytes arp(60);
  arp[12] = std::byte{8};
  arp[13] = std::byte{6};
  dataplane::FrameFilter filter;
  EXPECT_TRUE(filter.Matches(send));
  EXPECT_TRUE(filter.Matches(arp));
  filter.qpns = {roce::Qpn(4), roce::Qpn(5)};
  EXPECT_TRUE(filter.Matches(send));
  EXPECT_TRUE(filter.Matches(Packet(roce::Opcode::kRcSendOnly, 5, true, true)));
  EXPECT_FALSE(filter.Matches(Packet(roce::Opcode::kRcSendOnly, 6)));
  EXPECT_FALSE(filter.Matches(arp));
  filter.opcodes.set(static_cast<uint8_t>(roce::Opcode::kRcAcknowledge));
  EXPECT_FALSE(filter.Matches(send));
  EXPECT_TRUE(filter.Matches(Packet(roce::Opcode::kRcAcknowledge, 4)));
  // A datagram by who sends it.
  filter = {};
  filter.qpns = {roce::Qpn(0x77)};
  EXPECT_TRUE(filter.Matches(Packet(roce::Opcode::kUdSendOnly, 5)));
  EXPECT_FALSE(filter.Matches(send));
  for (size_t length = 0; length < send.size(); ++length) {
    filter.Matches(std::span(send).first(length));  // whatever the answer
  }
}

// What becomes of each of `count` frames.
std::string Fates(const ImpairmentSettings& settings, uint32_t lcore, size_t count) {
  Impairment rule(settings, lcore);
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    Bytes frame = Packet(roce::Opcode::kRcSendOnly, 5);
    dataplane::FrameFate fate;
    rule.Apply(frame, fate);
    out += fate.lost ? 'L' : fate.duplicated ? 'D' : fate.hold_ns != 0 ? 'R' : '.';
  }
  return out;
}

TEST(ImpairmentTest, TheSeedDecides) {
  ImpairmentSettings settings;
  settings.loss = settings.duplicate = settings.reorder = dataplane::kAlways / 10;
  settings.seed = 1;
  const std::string fates = Fates(settings, 0, 5000);
  EXPECT_EQ(fates, Fates(settings, 0, 5000));
  EXPECT_NE(fates, Fates(settings, 1, 5000));
  for (const char kind : {'L', 'D', 'R'}) {
    EXPECT_NEAR(static_cast<double>(std::count(fates.begin(), fates.end(), kind)), 450, 90) << kind;
  }
  settings.seed = 2;
  EXPECT_NE(fates, Fates(settings, 0, 5000));
  // What else may happen does not move the losses.
  settings.seed = 1;
  settings.duplicate = settings.reorder = 0;
  const std::string losses = Fates(settings, 0, 5000);
  for (size_t i = 0; i < fates.size(); ++i) EXPECT_EQ(losses[i] == 'L', fates[i] == 'L');
}

TEST(ImpairmentTest, NeverAndAlways) {
  ImpairmentSettings settings;
  settings.loss = dataplane::kAlways;
  EXPECT_EQ(Fates(settings, 0, 1000), std::string(1000, 'L'));
  settings.loss = 0;
  EXPECT_EQ(Fates(settings, 0, 1000), std::string(1000, '.'));
}

TEST(ImpairmentTest, DamageIsOneBitBehindTheEthernetHeader) {
  ImpairmentSettings settings;
  settings.corrupt = dataplane::kAlways;
  Impairment rule(settings, 0);
  const Bytes sent = Packet(roce::Opcode::kRcSendOnly, 5);
  for (int i = 0; i < 200; ++i) {
    Bytes frame = sent;
    dataplane::FrameFate fate;
    rule.Apply(frame, fate);
    int bits = 0;
    for (size_t at = 0; at < frame.size(); ++at) {
      const int differing = __builtin_popcount(std::to_integer<unsigned>(frame[at] ^ sent[at]));
      EXPECT_TRUE(differing == 0 || at >= 14);
      bits += differing;
    }
    EXPECT_EQ(bits, 1);
  }
  EXPECT_EQ(rule.counters().corrupted.value(), 200u);
}

TEST(ImpairmentTest, CongestionMarksKeepPacketsWhole) {
  for (const bool is_ipv6 : {false, true}) {
    Bytes frame = Packet(roce::Opcode::kRcSendOnly, 5, is_ipv6, true);
    EXPECT_TRUE(dataplane::MarkCongestion(frame));
    roce::Packet packet;
    EXPECT_EQ(roce::ParsePacket(frame, packet), roce::DropReason::kNone);
    EXPECT_EQ(packet.ecn(), roce::kEcnCongestionExperienced);
    EXPECT_FALSE(dataplane::MarkCongestion(frame));  // marked already
  }
  Bytes arp(60);
  EXPECT_FALSE(dataplane::MarkCongestion(arp));
}

class LinkTapTest : public ::testing::Test {
 protected:
  LinkTapTest() : tap_(0, &now_, TestDataplane().frames().mempool()) {}

  // A frame that says who it is.
  rte_mbuf* Make(uint8_t name) {
    rte_mbuf* frame = rte_pktmbuf_alloc(TestDataplane().frames().mempool());
    const Bytes bytes = Packet(roce::Opcode::kRcSendOnly, name);
    std::memcpy(rte_pktmbuf_append(frame, static_cast<uint16_t>(bytes.size())), bytes.data(),
                bytes.size());
    return frame;
  }
  // Sends frames of these names; the names of those that leave.
  std::vector<int> Send(const std::vector<uint8_t>& names) {
    rte_mbuf* frames[32];
    uint8_t to[32];
    uint32_t count = 0;
    for (const uint8_t name : names) {
      to[count] = name;
      frames[count++] = Make(name);
    }
    count = tap_.Send(frames, to, count, 32);
    std::vector<int> out;
    for (uint32_t i = 0; i < count; ++i) {
      out.push_back(std::to_integer<int>(rte_pktmbuf_mtod(frames[i], const std::byte*)[49]));
      EXPECT_EQ(to[i], out.back());
      rte_pktmbuf_free(frames[i]);
    }
    tap_.Sent(0);
    return out;
  }

  uint64_t now_ = 1000;
  LinkTap tap_;
};

TEST_F(LinkTapTest, DelayedFramesLeaveInOrderWhenTheirTimeHasCome) {
  ImpairmentSettings settings;
  settings.delay_ns = 100;
  Impairment rule(settings, 0);
  tap_.AddRule(LinkDirection::kOut, rule);
  EXPECT_EQ(Send({1, 2, 3}), std::vector<int>{});
  EXPECT_EQ(tap_.next_due(), 1100u);
  now_ = 1050;
  EXPECT_EQ(Send({4}), std::vector<int>{});
  EXPECT_FALSE(tap_.SendIsDue());
  now_ = 1100;
  EXPECT_TRUE(tap_.SendIsDue());
  EXPECT_EQ(Send({}), (std::vector<int>{1, 2, 3}));
  // Without the rule what is held still goes; then the tap has nothing to do.
  tap_.RemoveRule(rule);
  EXPECT_FALSE(tap_.IsIdle());
  EXPECT_EQ(Send({5}), std::vector<int>{5});
  now_ = 1150;
  EXPECT_EQ(Send({}), std::vector<int>{4});
  EXPECT_TRUE(tap_.IsIdle());
}

TEST_F(LinkTapTest, DuplicatesComeTwiceAndLostFramesNever) {
  ImpairmentSettings settings;
  settings.duplicate = dataplane::kAlways;
  Impairment twice(settings, 0);
  tap_.AddRule(LinkDirection::kOut, twice);
  EXPECT_EQ(Send({1, 2}), (std::vector<int>{1, 2, 1, 2}));
  ImpairmentSettings all_lost;
  all_lost.loss = dataplane::kAlways;
  Impairment never(all_lost, 0);
  tap_.AddRule(LinkDirection::kOut, never);
  EXPECT_EQ(Send({1, 2}), std::vector<int>{});
  EXPECT_EQ(never.counters().lost.value(), 2u);
  const uint32_t in_use = TestDataplane().frames().in_use();
  EXPECT_EQ(Send({1, 2}), std::vector<int>{});
  EXPECT_EQ(TestDataplane().frames().in_use(), in_use);
}

TEST_F(LinkTapTest, TheQueueOfHeldFramesIsBounded) {
  ImpairmentSettings settings;
  settings.delay_ns = 100;
  Impairment rule(settings, 0);
  tap_.AddRule(LinkDirection::kOut, rule);
  for (uint32_t i = 0; i < dataplane::DelayQueue::kCapacity; ++i) Send({1});
  EXPECT_EQ(rule.counters().queue_full.value(), 0u);
  Send({1});
  EXPECT_EQ(rule.counters().queue_full.value(), 1u);
  now_ += 100;
  size_t left = 0;
  while (tap_.SendIsDue()) left += Send({}).size();
  EXPECT_EQ(left, dataplane::DelayQueue::kCapacity);
}

TEST_F(LinkTapTest, ACaptureHasWhatLeavesAndCountsWhatItHasNoRoomFor) {
  auto capture = dataplane::CaptureTap::Create(1, {.filter = {}, .snap_length = 30});
  ASSERT_TRUE(capture.ok());
  ImpairmentSettings settings;
  settings.filter.qpns = {roce::Qpn(2)};
  settings.loss = dataplane::kAlways;
  Impairment rule(settings, 0);
  tap_.AddCapture(**capture);
  tap_.AddRule(LinkDirection::kOut, rule);
  EXPECT_EQ(Send({1, 2, 3}), (std::vector<int>{1, 3}));
  dataplane::CapturedFrame frame;
  for (const int name : {1, 3}) {
    ASSERT_TRUE((*capture)->Next(frame));
    EXPECT_EQ(frame.direction, LinkDirection::kOut);
    EXPECT_EQ(frame.time_ns, 1000u);
    EXPECT_EQ(frame.original_length, Packet(roce::Opcode::kRcSendOnly, 1).size()) << name;
    EXPECT_EQ(frame.bytes.size(), 30u);
  }
  EXPECT_FALSE((*capture)->Next(frame));
  for (uint32_t i = 0; i < dataplane::CaptureTap::kRingEntries + 10; ++i) Send({1});
  size_t kept = 0;
  while ((*capture)->Next(frame)) ++kept;
  EXPECT_EQ(kept + (*capture)->dropped(), dataplane::CaptureTap::kRingEntries + 10);
  EXPECT_GE((*capture)->dropped(), 10u);
  tap_.RemoveCapture(**capture);
}

}  // namespace
}  // namespace roci::testing
