// The tap between a lane and its port: filters, seeded impairments, delayed frames, captures.
#include "dataplane/link/link_tap.h"

#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/base/frame_pool.h"
#include "dataplane/link/frame_filter.h"
#include "dataplane/rings/trace.h"
#include "roce/frame.h"
#include "roce/parse.h"
#include "tests/on_shard.h"
#include "tests/unit/dataplane/environment.h"

namespace roci::testing {
namespace {

using dataplane::Bottleneck;
using dataplane::BottleneckSettings;
using dataplane::FrameArrival;
using dataplane::Impairment;
using dataplane::ImpairmentSettings;
using dataplane::LinkDirection;
using dataplane::LinkTap;
using Bytes = std::vector<std::byte>;

const dataplane::OnShard& kShard = dataplane::OnShardInTests::Token();

// By default from a sender that sets ECT(0).
Bytes Packet(roce::Opcode opcode, uint32_t qpn, bool is_ipv6 = false, bool has_vlan = false,
             uint8_t traffic_class = 2) {
  roce::Path path;
  path.src_gid = is_ipv6 ? roce::Gid{{0xFD, 1}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 1}});
  path.dst_gid = is_ipv6 ? roce::Gid{{0xFD, 2}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 2}});
  path.has_vlan = has_vlan;
  path.traffic_class = traffic_class;
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
  EXPECT_TRUE(Matches(filter, send));
  EXPECT_TRUE(Matches(filter, arp));
  filter.qpns = {roce::Qpn(4), roce::Qpn(5)};
  EXPECT_TRUE(Matches(filter, send));
  EXPECT_TRUE(Matches(filter, Packet(roce::Opcode::kRcSendOnly, 5, true, true)));
  EXPECT_FALSE(Matches(filter, Packet(roce::Opcode::kRcSendOnly, 6)));
  filter.peers = {roce::Qpn(6)};
  EXPECT_TRUE(Matches(filter, Packet(roce::Opcode::kRcSendOnly, 6)));
  EXPECT_FALSE(Matches(filter, arp));
  filter.opcodes.set(static_cast<uint8_t>(roce::Opcode::kRcAcknowledge));
  EXPECT_FALSE(Matches(filter, send));
  EXPECT_TRUE(Matches(filter, Packet(roce::Opcode::kRcAcknowledge, 4)));
  // A datagram matches by its sender.
  filter = {};
  filter.qpns = {roce::Qpn(0x77)};
  EXPECT_TRUE(Matches(filter, Packet(roce::Opcode::kUdSendOnly, 5)));
  EXPECT_FALSE(Matches(filter, send));
  for (size_t length = 0; length < send.size(); ++length) {
    Matches(filter, std::span(send).first(length));  // whatever the answer
  }
}

FrameArrival ArrivalOf(const Bytes& frame, uint64_t now_ns = 0) {
  return {.now_ns = now_ns, .bytes = static_cast<uint32_t>(frame.size())};
}

// The fate of each of `count` frames, one letter each.
std::string Fates(const ImpairmentSettings& settings, uint32_t lcore, size_t count) {
  Impairment rule(settings, lcore);
  std::string out;
  for (size_t i = 0; i < count; ++i) {
    Bytes frame = Packet(roce::Opcode::kRcSendOnly, 5);
    dataplane::FrameFate fate;
    rule.Apply(frame, ArrivalOf(frame), fate);
    out += fate.lost ? 'L' : fate.duplicated ? 'D' : fate.hold_ns() != 0 ? 'R' : '.';
  }
  return out;
}

TEST(ImpairmentTest, TheSeedDeterminesTheImpairments) {
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
  // Other impairments do not change which frames are lost.
  settings.seed = 1;
  settings.duplicate = settings.reorder = 0;
  const std::string losses = Fates(settings, 0, 5000);
  for (size_t i = 0; i < fates.size(); ++i) EXPECT_EQ(losses[i] == 'L', fates[i] == 'L');
  // Losses do not change which frames are duplicated.
  settings.duplicate = dataplane::kAlways / 10;
  settings.loss = 0;
  const std::string duplicates = Fates(settings, 0, 5000);
  for (size_t i = 0; i < fates.size(); ++i) {
    if (fates[i] != 'L') {
      EXPECT_EQ(duplicates[i] == 'D', fates[i] == 'D') << i;
    }
  }
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
    rule.Apply(frame, ArrivalOf(frame), fate);
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

TEST(ImpairmentTest, CongestionMarksKeepPacketsValid) {
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
  // RFC 3168, 5: a sender without ECN would not slow down on a mark.
  for (const bool is_ipv6 : {false, true}) {
    Bytes of_other = Packet(roce::Opcode::kRcSendOnly, 5, is_ipv6, false, 0x68);
    const Bytes before = of_other;
    EXPECT_FALSE(dataplane::MarkCongestion(of_other));
    EXPECT_EQ(of_other, before);
  }
}

// 1000 bytes of Ethernet take 8 us.
constexpr uint32_t kThousandOnWire = 1000 - Bottleneck::kOverheadBytes;
constexpr uint64_t kGigabit = 1'000'000'000;

TEST(BottleneckTest, FramesLeaveOneAfterTheOther) {
  Bottleneck link({.rate_bps = kGigabit, .queue_bytes = 10000});
  const auto first = link.Enter(kThousandOnWire, 1, 5000);
  EXPECT_TRUE(first.fits && !first.waits);
  EXPECT_NEAR(static_cast<double>(first.leaves_ns), 8000, 1);
  const auto second = link.Enter(kThousandOnWire, 1, 7000);
  EXPECT_TRUE(second.fits && second.waits);
  EXPECT_NEAR(static_cast<double>(second.leaves_ns), 6000 + 8000, 2);
  // Two copies take twice the time.
  EXPECT_NEAR(static_cast<double>(link.Enter(kThousandOnWire, 2, 7000).leaves_ns), 14000 + 16000,
              3);
  // Unused time is not accumulated.
  EXPECT_NEAR(static_cast<double>(link.Enter(kThousandOnWire, 1, kGigabit).leaves_ns), 8000, 1);
  // Short frames are padded.
  Bottleneck idle({.rate_bps = kGigabit, .queue_bytes = 10000});
  EXPECT_NEAR(static_cast<double>(idle.Enter(42, 1, 0).leaves_ns), 84 * 8, 1);
}

TEST(BottleneckTest, TheQueueIsBoundedAndMarksWhenItIsDeep) {
  Bottleneck link(
      {.rate_bps = kGigabit, .queue_bytes = 5001, .ecn_bytes = 3000, .ecn_all_bytes = 3000});
  std::string fates;
  for (int i = 0; i < 7; ++i) {
    const auto passage = link.Enter(kThousandOnWire, 1, 100);
    fates += !passage.fits                          ? 'L'
             : passage.marked == dataplane::kAlways ? 'E'
             : passage.waits                        ? 'w'
                                                    : '.';
  }
  EXPECT_EQ(fates, ".wwEELL");
  // One frame was sent, so there is room for one. Refused frames used no time of the link.
  EXPECT_TRUE(link.Enter(kThousandOnWire, 1, 8200).fits);
  EXPECT_FALSE(link.Enter(kThousandOnWire, 1, 8200).fits);
  // A frame longer than the queue passes if the queue is empty.
  Bottleneck none({.rate_bps = kGigabit, .queue_bytes = 0});
  EXPECT_TRUE(none.Enter(kThousandOnWire, 1, 0).fits);
  EXPECT_FALSE(none.Enter(kThousandOnWire, 1, 0).fits);
  EXPECT_TRUE(none.Enter(kThousandOnWire, 1, 9000).fits);
}

TEST(BottleneckTest, MarksGrowWithTheQueue) {
  Bottleneck link(
      {.rate_bps = kGigabit, .queue_bytes = 100'000, .ecn_bytes = 10'000, .ecn_all_bytes = 30'000});
  for (uint64_t before = 0; before < 40'000; before += 1000) {
    const auto chance =
        static_cast<double>(link.Enter(kThousandOnWire, 1, 0).marked) / double{dataplane::kAlways};
    const double part = (static_cast<double>(before) - 10'000) / 20'000;
    EXPECT_NEAR(chance, part < 0 ? 0 : part >= 1 ? 1 : part * 0.05, 0.001) << before;
  }
}

TEST(BottleneckTest, EveryRateIsMet) {
  for (const uint64_t rate : {BottleneckSettings::kLeastRateBps, uint64_t{10'000'000},
                              40 * kGigabit, BottleneckSettings::kMostRateBps}) {
    for (const uint32_t bytes : {60u, 1500u, 4200u}) {
      Bottleneck link({.rate_bps = rate, .queue_bytes = 100'000'000'000});
      constexpr uint64_t kFrames = 1000;
      uint64_t leaves = 0;
      for (uint64_t i = 0; i < kFrames; ++i) leaves = link.Enter(bytes, 1, 77).leaves_ns;
      const double bits = static_cast<double>((bytes + Bottleneck::kOverheadBytes) * 8 * kFrames);
      const double measured = bits / static_cast<double>(leaves) * 1e9;
      EXPECT_LE(measured, static_cast<double>(rate) * 1.00001);
      EXPECT_GE(measured, static_cast<double>(rate) * 0.97) << rate << " " << bytes;
    }
  }
}

TEST(BottleneckTest, ThreadsShareIt) {
  Bottleneck link({.rate_bps = kGigabit, .queue_bytes = 1'000'000'000});
  constexpr int kEach = 20000;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kEach; ++n) link.Enter(kThousandOnWire, 1, 10);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double expected = (3.0 * kEach + 1) * 8000;
  EXPECT_NEAR(static_cast<double>(link.Enter(kThousandOnWire, 1, 10).leaves_ns), expected,
              expected / 1e4);
}

TEST(ImpairmentTest, DeepQueuesMarkAndFullOnesDrop) {
  ImpairmentSettings settings;
  settings.bottleneck = {
      .rate_bps = kGigabit, .queue_bytes = 5001, .ecn_bytes = 2000, .ecn_all_bytes = 2000};
  Bottleneck link(settings.bottleneck);
  // Two lcores, one link.
  std::array<Impairment, 2> lanes = {Impairment(settings, 0, &link),
                                     Impairment(settings, 1, &link)};
  std::string fates;
  for (size_t i = 0; i < 8; ++i) {
    Bytes frame = Packet(roce::Opcode::kRcSendOnly, 5);
    dataplane::FrameFate fate;
    lanes[i % 2].Apply(frame, {.now_ns = 0, .bytes = kThousandOnWire}, fate);
    roce::Packet packet;
    EXPECT_EQ(roce::ParsePacket(frame, packet), roce::DropReason::kNone);
    fates += fate.lost ? 'L' : packet.ecn() == roce::kEcnCongestionExperienced ? 'E' : '.';
    EXPECT_EQ(fate.delay_ns, 0u);
  }
  EXPECT_EQ(fates, "..EEELLL");
  dataplane::ImpairmentSnapshot counters;
  for (const Impairment& lane : lanes) Add(counters, lane.counters());
  EXPECT_EQ(counters.matched, 8u);
  EXPECT_EQ(counters.rate_delayed, 4u);
  EXPECT_EQ(counters.rate_dropped, 3u);
  EXPECT_EQ(counters.ecn_marked, 3u);
  EXPECT_EQ(counters.lost, 0u);
  // Frames that cannot be delayed, and frames lost before, use no time of the link.
  settings.loss = dataplane::kAlways / 2;
  Bottleneck fresh(settings.bottleneck);
  Impairment lossy(settings, 0, &fresh);
  uint64_t passed = 0;
  for (int i = 0; i < 100; ++i) {
    Bytes frame = Packet(roce::Opcode::kRcSendOnly, 5);
    dataplane::FrameFate fate;
    lossy.Apply(frame, {.now_ns = 0, .bytes = 12, .has_room = i % 10 == 0}, fate);
    if (fate.lost) continue;
    ++passed;
    EXPECT_NEAR(static_cast<double>(fate.queue_ns), static_cast<double>(672 * passed), 10);
  }
  EXPECT_GT(passed, 0u);
  EXPECT_EQ(lossy.counters().lost.value() + lossy.counters().queue_full.value() + passed, 100u);
}

class LinkTapTest : public ::testing::Test {
 protected:
  LinkTapTest() : tap_(0, &now_, TestDataplane().frames().mempool(), {}) {}

  // A frame that contains its number.
  rte_mbuf* Make(uint8_t name) {
    rte_mbuf* frame = rte_pktmbuf_alloc(TestDataplane().frames().mempool());
    const Bytes bytes = Packet(roce::Opcode::kRcSendOnly, name);
    std::memcpy(rte_pktmbuf_append(frame, static_cast<uint16_t>(bytes.size())), bytes.data(),
                bytes.size());
    return frame;
  }
  // Sends frames with these numbers; returns the numbers of the frames that leave.
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

TEST_F(LinkTapTest, DelayedFramesLeaveInOrderAfterTheirDelay) {
  ImpairmentSettings settings;
  settings.delay_ns = 100;
  Impairment rule(settings, 0);
  tap_.AddRule(kShard, LinkDirection::kOut, rule);
  EXPECT_EQ(Send({1, 2, 3}), std::vector<int>{});
  EXPECT_EQ(tap_.next_due(), 1100u);
  now_ = 1050;
  EXPECT_EQ(Send({4}), std::vector<int>{});
  EXPECT_FALSE(tap_.SendIsDue());
  now_ = 1100;
  EXPECT_TRUE(tap_.SendIsDue());
  EXPECT_EQ(Send({}), (std::vector<int>{1, 2, 3}));
  // After the rule is removed, delayed frames still leave; then the tap is idle.
  tap_.RemoveRule(kShard, rule);
  EXPECT_FALSE(tap_.IsIdle());
  EXPECT_EQ(Send({5}), std::vector<int>{5});
  now_ = 1150;
  EXPECT_EQ(Send({}), std::vector<int>{4});
  EXPECT_TRUE(tap_.IsIdle());
}

// The tests' frames are shorter than the minimum of Ethernet.
constexpr uint64_t kFrameNs = Bottleneck::kLeastWireBytes * 8;

TEST_F(LinkTapTest, ARateSpacesFramesInTheirOrder) {
  ASSERT_LT(Packet(roce::Opcode::kRcSendOnly, 5).size() + Bottleneck::kOverheadBytes,
            Bottleneck::kLeastWireBytes);
  ImpairmentSettings settings;
  settings.bottleneck = {.rate_bps = kGigabit, .queue_bytes = 1'000'000};
  settings.delay_ns = 5000;
  Bottleneck link(settings.bottleneck);
  Impairment rule(settings, 0, &link);
  tap_.AddRule(kShard, LinkDirection::kOut, rule);
  EXPECT_EQ(Send({1, 2, 3}), std::vector<int>{});
  std::vector<int> left;
  std::vector<uint64_t> times;
  for (const uint64_t begin = now_; left.size() < 5; now_ += 10) {
    ASSERT_LT(now_, begin + 100'000);
    for (const int name :
         Send(now_ == begin + 100 ? std::vector<uint8_t>{4, 5} : std::vector<uint8_t>{})) {
      left.push_back(name);
      times.push_back(now_ - begin);
    }
  }
  EXPECT_EQ(left, (std::vector<int>{1, 2, 3, 4, 5}));
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(times[i]), static_cast<double>(5000 + (i + 1) * kFrameNs), 20);
  }
  EXPECT_EQ(rule.counters().rate_delayed.value(), 4u);
  tap_.RemoveRule(kShard, rule);
  EXPECT_TRUE(tap_.IsIdle());
}

TEST_F(LinkTapTest, TheSlowestOfSeveralRatesApplies) {
  ImpairmentSettings slow;
  slow.filter.qpns = {roce::Qpn(1)};
  slow.bottleneck = {.rate_bps = kGigabit / 10, .queue_bytes = 1'000'000};
  ImpairmentSettings fast;
  fast.bottleneck = {.rate_bps = kGigabit, .queue_bytes = 1'000'000};
  Bottleneck slow_link(slow.bottleneck), fast_link(fast.bottleneck);
  Impairment slow_rule(slow, 0, &slow_link), fast_rule(fast, 0, &fast_link);
  tap_.AddRule(kShard, LinkDirection::kOut, slow_rule);
  tap_.AddRule(kShard, LinkDirection::kOut, fast_rule);
  Send({1, 2, 1, 2});
  // Other frames do not wait for frames that the first rule delays.
  now_ += 4 * kFrameNs + 10;
  EXPECT_EQ(Send({}), (std::vector<int>{2, 2}));
  now_ += 6 * kFrameNs;
  EXPECT_EQ(Send({}), std::vector<int>{1});
  now_ += 10 * kFrameNs;
  EXPECT_EQ(Send({}), std::vector<int>{1});
  tap_.RemoveRule(kShard, slow_rule);
  tap_.RemoveRule(kShard, fast_rule);
}

TEST_F(LinkTapTest, DroppedFramesUseNoTimeOfARate) {
  ImpairmentSettings settings;
  settings.bottleneck = {.rate_bps = kGigabit, .queue_bytes = 100'000'000};
  Bottleneck link(settings.bottleneck);
  Impairment rule(settings, 0, &link);
  tap_.AddRule(kShard, LinkDirection::kOut, rule);
  constexpr uint32_t kHeld = dataplane::DelayQueue::kCapacity;
  for (uint32_t i = 0; i < kHeld + 500; ++i) Send({1});
  EXPECT_EQ(rule.counters().queue_full.value(), 500u);
  now_ += kHeld * kFrameNs + 100;
  size_t left = 0;
  while (tap_.SendIsDue()) left += Send({}).size();
  EXPECT_EQ(left, kHeld);
  EXPECT_EQ(Send({1}), std::vector<int>{});
  EXPECT_NEAR(static_cast<double>(tap_.next_due() - now_), static_cast<double>(kFrameNs), 2);
  now_ += kFrameNs + 2;
  EXPECT_EQ(Send({}), std::vector<int>{1});
}

TEST_F(LinkTapTest, WithVirtualTimeFramesLeaveOneAfterTheOtherAndArriveLater) {
  constexpr uint32_t kRateMbps = 1000, kFrames = 64;
  LinkTap peer(0, &now_, TestDataplane().frames().mempool(), {});
  for (LinkTap* tap : {&tap_, &peer}) tap->UseWireTime(kShard, kRateMbps, kFrames);
  EXPECT_FALSE(tap_.IsIdle());
  rte_mbuf* frames[32] = {Make(1), Make(2)};
  uint8_t to[32] = {};
  for (int i = 0; i < 2; ++i) frames[i]->hash.usr = 0x12;  // the queue pair that sends it
  const uint64_t begin = now_;
  EXPECT_EQ(tap_.Send(frames, to, 2, 32), 0u);
  for (uint64_t i = 1; i <= 2; ++i) {
    const uint64_t left = tap_.next_due();
    EXPECT_NEAR(static_cast<double>(left - begin), static_cast<double>(i * kFrameNs), 2);
    now_ = left - 1;
    EXPECT_EQ(tap_.Send(frames, to, 0, 32), 0u);
    now_ = left;
    ASSERT_EQ(tap_.Send(frames, to, 0, 32), 1u);
    EXPECT_EQ(peer.Receive(frames, 1, 32), 0u);
  }
  for (int i = 0; i < 2; ++i) {
    now_ = peer.next_due();
    ASSERT_EQ(peer.Receive(frames, 0, 32), 1u);
    rte_pktmbuf_free(frames[0]);
  }
  EXPECT_NEAR(static_cast<double>(now_ - begin),
              static_cast<double>(2 * kFrameNs + dataplane::WireTime::kLatencyNs), 4);
  EXPECT_EQ(peer.next_due(), dataplane::DelayQueue::kNever);
}

TEST_F(LinkTapTest, FramesOfTheControlThreadTakeNoVirtualTime) {
  LinkTap peer(0, &now_, TestDataplane().frames().mempool(), {});
  for (LinkTap* tap : {&tap_, &peer}) tap->UseWireTime(kShard, 1000, 64);
  rte_mbuf* frames[32] = {Make(1)};
  uint8_t to[32] = {};
  frames[0]->hash.usr = roce::kGsiQpn.value();
  ASSERT_EQ(tap_.Send(frames, to, 1, 32), 1u);
  ASSERT_EQ(peer.Receive(frames, 1, 32), 1u);
  rte_pktmbuf_free(frames[0]);
}

TEST_F(LinkTapTest, DuplicatesArriveTwiceAndLostFramesNever) {
  ImpairmentSettings settings;
  settings.duplicate = dataplane::kAlways;
  Impairment twice(settings, 0);
  tap_.AddRule(kShard, LinkDirection::kOut, twice);
  EXPECT_EQ(Send({1, 2}), (std::vector<int>{1, 2, 1, 2}));
  ImpairmentSettings all_lost;
  all_lost.loss = dataplane::kAlways;
  Impairment never(all_lost, 0);
  tap_.AddRule(kShard, LinkDirection::kOut, never);
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
  tap_.AddRule(kShard, LinkDirection::kOut, rule);
  for (uint32_t i = 0; i < dataplane::DelayQueue::kCapacity; ++i) Send({1});
  EXPECT_EQ(rule.counters().queue_full.value(), 0u);
  Send({1});
  EXPECT_EQ(rule.counters().queue_full.value(), 1u);
  now_ += 100;
  size_t left = 0;
  while (tap_.SendIsDue()) left += Send({}).size();
  EXPECT_EQ(left, dataplane::DelayQueue::kCapacity);
}

TEST_F(LinkTapTest, ACaptureHasTheSentFramesAndCountsOverflows) {
  auto capture = dataplane::CaptureTap::Create(1, {.filter = {}, .snap_length = 30});
  ASSERT_TRUE(capture.ok());
  ImpairmentSettings settings;
  settings.filter.qpns = {roce::Qpn(2)};
  settings.loss = dataplane::kAlways;
  Impairment rule(settings, 0);
  tap_.AddCapture(kShard, **capture);
  tap_.AddRule(kShard, LinkDirection::kOut, rule);
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
  for (uint32_t i = 0; i < dataplane::CaptureReader::kMaxWaiting + 10; ++i) Send({1});
  size_t kept = 0;
  while ((*capture)->Next(frame)) ++kept;
  EXPECT_EQ(kept + (*capture)->dropped(), dataplane::CaptureReader::kMaxWaiting + 10);
  EXPECT_GE((*capture)->dropped(), 10u);
  tap_.RemoveCapture(kShard, **capture);
}

class TracedLinkTapTest : public LinkTapTest {
 protected:
  TracedLinkTapTest() {
    trace_.UseClock(&now_);
    tap_.UseTrace(kShard, &trace_);
  }
  void TearDown() override { tap_.UseTrace(kShard, nullptr); }

  std::vector<dataplane::TraceRecord> Taken() {
    std::vector<dataplane::TraceRecord> out;
    ring_.Take(UINT64_MAX, out);
    return out;
  }

  dataplane::TraceRing ring_;
  const dataplane::TraceSettings settings_{.qpns = {roce::Qpn(5)}};
  dataplane::LaneTrace trace_{ring_, settings_, 0, 0};
};

TEST_F(TracedLinkTapTest, SentPacketsAreOfTheirSenderAndRecordedOnceBeforeImpairments) {
  ImpairmentSettings lost;
  lost.loss = dataplane::kAlways;
  Impairment never(lost, 0);
  tap_.AddRule(kShard, LinkDirection::kOut, never);
  std::array<rte_mbuf*, 32> frames{};
  std::array<uint8_t, 32> to{};
  for (uint32_t i = 0; i < 2; ++i) {
    frames[i] = Make(77);
    frames[i]->hash.usr = 5 + i;
  }
  EXPECT_EQ(tap_.Send(frames.data(), to.data(), 2, 32), 0u);
  std::vector<dataplane::TraceRecord> taken = Taken();
  ASSERT_EQ(taken.size(), 1u) << "the other one is of queue pair 6";
  EXPECT_EQ(taken[0].qpn, 5u);
  EXPECT_TRUE(taken[0].packet.is_sent);
  EXPECT_EQ(roce::Bth::Load(taken[0].packet.headers.data()).dest_qpn.value(), 77u);
  // A frame that the port did not take passes the tap again.
  tap_.RemoveRule(kShard, never);
  frames[0] = Make(77);
  frames[0]->hash.usr = 5;
  EXPECT_EQ(tap_.Send(frames.data(), to.data(), 1, 32), 1u);
  tap_.Sent(1);
  EXPECT_EQ(tap_.Send(frames.data(), to.data(), 1, 32), 1u);
  tap_.Sent(0);
  rte_pktmbuf_free(frames[0]);
  EXPECT_EQ(Taken().size(), 1u);
}

TEST_F(TracedLinkTapTest, ReceivedPacketsAreOfTheirDestinationAndRecordedAfterImpairments) {
  ImpairmentSettings marks;
  marks.ecn = dataplane::kAlways;
  Impairment rule(marks, 0);
  tap_.AddRule(kShard, LinkDirection::kIn, rule);
  std::array<rte_mbuf*, 32> frames = {Make(5), Make(6), Make(5)};
  // No RoCE packet: a frame without its transport headers.
  rte_pktmbuf_trim(frames[2], static_cast<uint16_t>(rte_pktmbuf_data_len(frames[2]) - 34));
  const uint32_t count = tap_.Receive(frames.data(), 3, 32);
  ASSERT_EQ(count, 3u);
  const std::vector<dataplane::TraceRecord> taken = Taken();
  ASSERT_EQ(taken.size(), 1u);
  EXPECT_FALSE(taken[0].packet.is_sent);
  EXPECT_TRUE(taken[0].packet.is_marked);
  // BTH and ICRC.
  EXPECT_EQ(taken[0].packet.bytes, 16u);
  for (uint32_t i = 0; i < count; ++i) rte_pktmbuf_free(frames[i]);
  tap_.RemoveRule(kShard, rule);
}

}  // namespace
}  // namespace roci::testing
