// Exact faults: which packets they hit, and what becomes of these.
#include "dataplane/link/fault.h"

#include <gtest/gtest.h>
#include <rte_mbuf.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/frame_pool.h"
#include "dataplane/link/frame_filter.h"
#include "dataplane/link/link_tap.h"
#include "roce/frame.h"
#include "roce/parse.h"
#include "tests/on_shard.h"
#include "tests/unit/dataplane/environment.h"

namespace roci::testing {
namespace {

using dataplane::Fault;
using dataplane::FaultFate;
using dataplane::FaultFrame;
using dataplane::FaultLane;
using dataplane::FaultSettings;
using dataplane::FaultTable;
using dataplane::LinkDirection;
using dataplane::LinkTap;
using dataplane::PacketPart;
using Bytes = std::vector<std::byte>;

const dataplane::OnShard& kShard = dataplane::OnShardInTests::Token();
constexpr uint32_t kQpn = 5;
constexpr uint32_t kOwnQpn = 9;
constexpr size_t kPayloadBytes = 8;

Bytes Datagram(uint32_t qpn, const Bytes& payload) {
  roce::Path path;
  path.src_gid = roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 1}});
  path.dst_gid = roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 2}});
  const roce::FrameTemplate tmpl(path);
  roce::TxPacket tx;
  tx.opcode = roce::Opcode::kUdSendOnly;
  tx.dest_qpn = roce::Qpn(qpn);
  tx.payload_length = static_cast<uint32_t>(payload.size());
  Bytes frame(roce::FrameBytes(tmpl, tx));
  roce::EncodeFrame(tmpl, tx, payload.data(), 0, frame.data());
  return frame;
}

Bytes Packet(roce::Opcode opcode, uint32_t psn, uint32_t qpn = kQpn, bool is_ipv6 = false) {
  roce::Path path;
  path.src_gid = is_ipv6 ? roce::Gid{{0xFD, 1}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 1}});
  path.dst_gid = is_ipv6 ? roce::Gid{{0xFD, 2}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 2}});
  path.traffic_class = 2;
  const roce::FrameTemplate tmpl(path);
  roce::TxPacket tx;
  tx.opcode = opcode;
  tx.dest_qpn = roce::Qpn(qpn);
  tx.psn = roce::Psn(psn);
  const bool has_payload = roce::InfoOf(opcode).payload == roce::PayloadRule::kAny;
  const Bytes payload(has_payload ? kPayloadBytes : 0, std::byte{0x5A});
  tx.payload_length = static_cast<uint32_t>(payload.size());
  Bytes frame(roce::FrameBytes(tmpl, tx));
  roce::EncodeFrame(tmpl, tx, payload.data(), 0, frame.data());
  return frame;
}

bool IcrcIsRight(const Bytes& frame) {
  roce::Packet packet;
  return roce::ParsePacket(frame, packet) == roce::DropReason::kNone;
}

uint64_t FieldOf(const Bytes& frame, std::string_view name) {
  return roce::ReadField(dataplane::FromBth(frame), *roce::FindPacketField(name)).value_or(~0ull);
}

FaultFrame FrameOf(Bytes& bytes, LinkDirection direction = LinkDirection::kOut) {
  return {.bytes = bytes,
          .transport_offset = bytes.size() - dataplane::FromBth(bytes).size(),
          .direction = direction};
}

// As LinkTap calls it, which passes packets only.
FaultFate Apply(FaultLane& lane, Bytes& bytes, uint64_t now_ns = 0) {
  FaultFate fate;
  FaultFrame frame = FrameOf(bytes);
  frame.now_ns = now_ns;
  if (frame.transport_offset != bytes.size()) lane.Apply(frame, fate);
  return fate;
}

// 'X': a packet with this PSN is dropped.
char FateOf(FaultLane& lane, uint32_t psn, uint64_t now_ns) {
  Bytes frame = Packet(roce::Opcode::kRcSendOnly, psn);
  return Apply(lane, frame, now_ns).is_dropped ? 'X' : '.';
}

// Which of these packets are hit, by their PSNs.
std::vector<uint32_t> HitPsns(const FaultSettings& settings, const std::vector<uint32_t>& psns,
                              roce::Opcode opcode = roce::Opcode::kRcSendOnly) {
  Fault fault(settings, 0);
  FaultLane lane(fault);
  std::vector<uint32_t> hit;
  for (const uint32_t psn : psns) {
    Bytes frame = Packet(opcode, psn);
    const FaultFate fate = Apply(lane, frame);
    if (fate.is_dropped) hit.push_back(psn);
  }
  EXPECT_EQ(fault.Snapshot().hit, hit.size());
  return hit;
}

FaultSettings Drop() {
  FaultSettings settings;
  settings.actions.drops = true;
  return settings;
}

using Psns = std::vector<uint32_t>;

TEST(FaultMatchTest, CountsChooseExactly) {
  const Psns psns = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  struct Case {
    uint64_t nth, every, times;
    Psns hit;
  };
  for (const Case& each : {Case{1, 1, 0, psns},
                           {3, 1, 1, {2}},
                           {3, 1, 0, {2, 3, 4, 5, 6, 7, 8, 9}},
                           {1, 4, 0, {0, 4, 8}},
                           {2, 4, 2, {1, 5}},
                           {11, 1, 0, {}}}) {
    FaultSettings settings = Drop();
    settings.match.when.nth = each.nth;
    settings.match.when.every = each.every;
    settings.match.when.times = each.times;
    EXPECT_EQ(HitPsns(settings, psns), each.hit) << each.nth << ' ' << each.every;
  }
}

TEST(FaultMatchTest, PsnsAreAbsoluteOrCountedFromTheFirst) {
  FaultSettings settings = Drop();
  settings.match.psn = 12;
  EXPECT_EQ(HitPsns(settings, {10, 11, 12, 13, 12}), (Psns{12, 12}));
  settings.match.psn_from_first = true;
  settings.match.psn = 2;
  EXPECT_EQ(HitPsns(settings, {0xFFFFFF, 0, 1, 2}), (Psns{1})) << "PSNs wrap";
}

TEST(FaultMatchTest, OnlyTheChosenPassOfAPsn) {
  FaultSettings settings = Drop();
  settings.match.psn = 1;
  settings.match.pass = 2;
  Fault fault(settings, 0);
  FaultLane lane(fault);
  std::string fates;
  for (const uint32_t psn : {0u, 1u, 2u, 1u, 2u, 1u}) fates += FateOf(lane, psn, 0);
  EXPECT_EQ(fates, "...X..");
}

TEST(FaultMatchTest, RequestsAndResponsesOfManyQueuePairsAreCountedApart) {
  FaultSettings settings = Drop();
  settings.match.psn = 1;
  settings.match.psn_from_first = true;
  Fault fault(settings, 0);
  FaultLane lane(fault);
  const auto is_hit = [&](roce::Opcode opcode, uint32_t qpn, uint32_t psn) {
    Bytes frame = Packet(opcode, psn, qpn);
    const FaultFate fate = Apply(lane, frame);
    return fate.is_dropped;
  };
  EXPECT_FALSE(is_hit(roce::Opcode::kRcSendOnly, 1, 100));
  EXPECT_FALSE(is_hit(roce::Opcode::kRcAcknowledge, 1, 200));
  EXPECT_FALSE(is_hit(roce::Opcode::kRcSendOnly, 2, 300));
  EXPECT_TRUE(is_hit(roce::Opcode::kRcSendOnly, 1, 101));
  EXPECT_TRUE(is_hit(roce::Opcode::kRcAcknowledge, 1, 201));
  EXPECT_TRUE(is_hit(roce::Opcode::kRcSendOnly, 2, 301));
  // The table is bounded.
  for (uint32_t qpn = 10; qpn < 10 + FaultLane::kMostFlows; ++qpn) {
    is_hit(roce::Opcode::kRcSendOnly, qpn, 7);
  }
  EXPECT_EQ(fault.Snapshot().untracked, 3u);
  EXPECT_TRUE(is_hit(roce::Opcode::kRcSendOnly, 10, 8));
}

TEST(FaultMatchTest, LastsFromOneTimeToAnother) {
  FaultSettings settings = Drop();
  settings.match.when.after_ns = 10;
  settings.match.when.for_ns = 5;
  Fault fault(settings, 1000);
  FaultLane lane(fault);
  std::string fates;
  for (const uint64_t now_ns : {999u, 1009u, 1010u, 1014u, 1015u}) fates += FateOf(lane, 0, now_ns);
  EXPECT_EQ(fates, "..XX.");
}

TEST(FaultMatchTest, LcoresShareCountsAndChances) {
  FaultSettings settings = Drop();
  settings.match.when.chance = dataplane::kAlways / 4;
  settings.match.when.seed = 7;
  Psns psns(2000);
  for (uint32_t i = 0; i < psns.size(); ++i) psns[i] = i;
  const Psns alone = HitPsns(settings, psns);
  EXPECT_NEAR(static_cast<double>(alone.size()), 500, 80);
  Fault fault(settings, 0);
  FaultLane lanes[] = {FaultLane(fault), FaultLane(fault)};
  Psns together;
  for (const uint32_t psn : psns) {
    Bytes frame = Packet(roce::Opcode::kRcSendOnly, psn);
    const FaultFate fate = Apply(lanes[psn % 3 == 0], frame);
    if (fate.is_dropped) together.push_back(psn);
  }
  EXPECT_EQ(together, alone);
  settings.match.when.seed = 8;
  EXPECT_NE(HitPsns(settings, psns), alone);
}

TEST(FaultMatchTest, MessagesOfTheConnectionManagerByAttribute) {
  constexpr uint16_t kRep = 0x13;
  constexpr size_t kMadBytes = 256;
  const auto fate_of = [&](uint32_t qpn, uint8_t management_class, uint16_t attribute,
                           size_t bytes) {
    FaultSettings settings = Drop();
    settings.match.cm_message = kRep;
    Fault fault(settings, 0);
    FaultLane lane(fault);
    Bytes mad(bytes, std::byte{0});
    mad[1] = std::byte{management_class};
    if (bytes == kMadBytes) roce::StoreBe<uint16_t>(mad.data() + 16, attribute);
    Bytes frame = Datagram(qpn, mad);
    return Apply(lane, frame).is_dropped;
  };
  EXPECT_TRUE(fate_of(1, 7, kRep, kMadBytes));
  EXPECT_FALSE(fate_of(1, 7, kRep + 1, kMadBytes));
  EXPECT_FALSE(fate_of(2, 7, kRep, kMadBytes)) << "not the general service interface";
  EXPECT_FALSE(fate_of(1, 3, kRep, kMadBytes)) << "subnet administration";
  EXPECT_FALSE(fate_of(1, 7, kRep, 2)) << "too short";
}

TEST(FaultMatchTest, OnlyRocePackets) {
  Bytes arp(60);
  arp[12] = std::byte{8};
  arp[13] = std::byte{6};
  Fault fault(Drop(), 0);
  FaultLane lane(fault);
  EXPECT_FALSE(Apply(lane, arp).is_dropped);
  // An IPv4 header that names itself too short has no packet behind it.
  Bytes short_header = Packet(roce::Opcode::kRcSendOnly, 1);
  for (uint8_t words = 0; words < 5; ++words) {
    short_header[roce::EthernetHeader::kBytes] = std::byte{0x40} | std::byte{words};
    // The port where the UDP header would be.
    const size_t udp = roce::EthernetHeader::kBytes + size_t{words} * 4;
    roce::StoreBe<uint16_t>(short_header.data() + udp + 2, roce::kRoceUdpPort);
    EXPECT_TRUE(dataplane::FromBth(short_header).empty()) << int{words};
  }
  // Damaged and short frames are never read beyond their end.
  FaultSettings settings;
  settings.actions.changes = {{roce::FindPacketField("bth.psn"), true, 1}};
  settings.actions.flips = {{PacketPart::kPayload, 1}};
  settings.actions.fixes_icrc = true;
  Fault changes(settings, 0);
  FaultLane changing(changes);
  const Bytes whole = Packet(roce::Opcode::kRcSendOnly, 1);
  for (size_t length = 0; length <= whole.size(); ++length) {
    Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    Apply(changing, cut);
  }
  EXPECT_EQ(changes.Snapshot().hit, changes.Snapshot().not_there + 1);
}

Bytes AfterActions(const dataplane::FaultActions& actions, Bytes frame,
                   dataplane::FaultSnapshot* counters = nullptr) {
  FaultSettings settings;
  settings.actions = actions;
  Fault fault(settings, 0);
  FaultLane lane(fault);
  Apply(lane, frame);
  if (counters != nullptr) *counters = fault.Snapshot();
  return frame;
}

TEST(FaultActionTest, EveryFieldChangesAloneAndTheIcrcIsRight) {
  const std::vector<roce::Opcode> opcodes = {
      roce::Opcode::kRcSendOnly,           roce::Opcode::kRcWriteOnlyImm,
      roce::Opcode::kRcReadRequest,        roce::Opcode::kRcCompareSwap,
      roce::Opcode::kRcAcknowledge,        roce::Opcode::kRcAtomicAcknowledge,
      roce::Opcode::kRcSendOnlyInvalidate, roce::Opcode::kUdSendOnly,
      roce::Opcode::kXrcSendOnly,          roce::Opcode::kRcFlush};
  for (const roce::PacketField& field : roce::PacketFields()) {
    size_t with_field = 0;
    for (const roce::Opcode opcode : opcodes) {
      for (const bool is_ipv6 : {false, true}) {
        const Bytes before = Packet(opcode, 9, kQpn, is_ipv6);
        if (FieldOf(before, field.name) == ~0ull &&
            !roce::ReadField(dataplane::FromBth(before), field))
          continue;
        ++with_field;
        dataplane::FaultActions actions;
        actions.changes = {{&field, true, 1}};
        actions.fixes_icrc = true;
        const Bytes after = AfterActions(actions, before);
        EXPECT_EQ(FieldOf(after, field.name),
                  (FieldOf(before, field.name) + 1) & roce::MostOf(field))
            << field.name;
        // The field and the ICRC differ, and nothing else.
        actions.changes[0].value = roce::MostOf(field);
        actions.fixes_icrc = false;
        const Bytes restored = AfterActions(actions, after);
        const auto icrc = static_cast<ptrdiff_t>(before.size() - roce::kIcrcBytes);
        EXPECT_TRUE(std::equal(before.begin(), before.begin() + icrc, restored.begin()))
            << field.name;
        EXPECT_EQ(std::equal(before.begin() + icrc, before.end(), restored.begin() + icrc),
                  field.name == "bth.fecn" || field.name == "bth.becn")
            << field.name << ": masked in the ICRC";
      }
    }
    EXPECT_GT(with_field, 0u) << field.name;
  }
}

TEST(FaultActionTest, TheIcrcIsFixedOrKept) {
  const Bytes before = Packet(roce::Opcode::kRcSendOnly, 9);
  ASSERT_TRUE(IcrcIsRight(before));
  dataplane::FaultActions actions;
  actions.flips = {{PacketPart::kPayload, 3}};
  Bytes after = AfterActions(actions, before);
  EXPECT_FALSE(IcrcIsRight(after));
  const size_t payload = before.size() - roce::kIcrcBytes - kPayloadBytes;
  EXPECT_EQ(after[payload], std::byte{0x5A ^ 0x10});
  actions.fixes_icrc = true;
  EXPECT_TRUE(IcrcIsRight(AfterActions(actions, before)));
  actions.flips.push_back({PacketPart::kIcrc, 31});
  EXPECT_FALSE(IcrcIsRight(AfterActions(actions, before))) << "flipped after it was fixed";
  actions.fixes_icrc = false;
  actions.flips = {{PacketPart::kHeaders, 95}};
  EXPECT_EQ(FieldOf(AfterActions(actions, before), "bth.psn"), 8u);
}

TEST(FaultActionTest, WhatIsNotThereIsCounted) {
  dataplane::FaultActions actions;
  actions.changes = {{roce::FindPacketField("aeth.msn"), false, 1}};
  actions.flips = {{PacketPart::kPayload, 8 * kPayloadBytes}, {PacketPart::kIcrc, 32}};
  const Bytes before = Packet(roce::Opcode::kRcSendOnly, 9);
  dataplane::FaultSnapshot counters;
  EXPECT_EQ(AfterActions(actions, before, &counters), before);
  EXPECT_EQ(counters.not_there, 3u);
}

// A tap with one fault; frames are named by their PSNs.
class FaultTapTest : public ::testing::Test {
 protected:
  explicit FaultTapTest(LinkDirection direction = LinkDirection::kOut) : direction_(direction) {}

  void Use(const FaultSettings& settings) {
    table_.reset();
    fault_.emplace(settings, 0);
    lane_.emplace(*fault_);
    UseLanes({&*lane_});
  }
  void UseLanes(std::vector<FaultLane*> lanes) {
    std::vector<FaultTable::Entry> entries;
    for (FaultLane* lane : lanes) entries.push_back({lane, lane->match().filter.qpns});
    auto table = std::make_unique<FaultTable>(entries);
    tap_.UseFaults(kShard, lanes.front()->match().direction, table.get());
    table_ = std::move(table);
  }
  void UseNone() { tap_.UseFaults(kShard, direction_, nullptr); }

  // A lane with one queue pair, connected to kQpn.
  dataplane::LaneView View() {
    return {
        .lane = this,
        .origin_of = [](const void* self, roce::Qpn qpn) -> const dataplane::QueuePairOrigin* {
          if (qpn != roce::Qpn(kOwnQpn)) return nullptr;
          return &static_cast<const FaultTapTest*>(self)->origin_;
        },
        .peer_of = [](const void*,
                      roce::Qpn qpn) { return roce::Qpn(qpn == roce::Qpn(kOwnQpn) ? kQpn : 0); },
        .lcore_of = [](const void*, roce::Qpn) { return uint8_t{0}; }};
  }

  // Passes the frames through the tap. Returns those that come out now.
  std::vector<Bytes> Pass(LinkDirection direction, const std::vector<Bytes>& in) {
    std::vector<rte_mbuf*> frames(64);
    std::vector<uint8_t> to(64);
    for (size_t i = 0; i < in.size(); ++i) frames[i] = MakeFrame(in[i]);
    const auto count = static_cast<uint32_t>(in.size());
    const uint32_t left = direction == LinkDirection::kOut
                              ? tap_.Send(frames.data(), to.data(), count, 64)
                              : tap_.Receive(frames.data(), count, 64);
    tap_.Sent(0);
    std::vector<Bytes> out;
    for (uint32_t i = 0; i < left; ++i) {
      const auto* const first = rte_pktmbuf_mtod(frames[i], const std::byte*);
      out.emplace_back(first, first + frames[i]->data_len);
      rte_pktmbuf_free(frames[i]);
    }
    return out;
  }

  // Sends frames with these PSNs in one burst. Returns the PSNs that come out.
  Psns Send(const Psns& psns) {
    std::vector<rte_mbuf*> frames(64);
    std::vector<uint8_t> to(64);
    for (size_t i = 0; i < psns.size(); ++i) {
      frames[i] = MakeFrame(Packet(roce::Opcode::kRcSendOnly, psns[i]));
    }
    const uint32_t count =
        tap_.Send(frames.data(), to.data(), static_cast<uint32_t>(psns.size()), 64);
    tap_.Sent(0);
    Psns out;
    for (uint32_t i = 0; i < count; ++i) {
      const std::span<const std::byte> bytes(rte_pktmbuf_mtod(frames[i], const std::byte*),
                                             frames[i]->data_len);
      out.push_back(static_cast<uint32_t>(FieldOf({bytes.begin(), bytes.end()}, "bth.psn")));
      last_bytes_ = frames[i]->pkt_len;
      rte_pktmbuf_free(frames[i]);
    }
    return out;
  }

  static rte_mbuf* MakeFrame(const Bytes& bytes) {
    rte_mbuf* frame = rte_pktmbuf_alloc(TestDataplane().frames().mempool());
    frame->hash.usr = kOwnQpn;
    std::memcpy(rte_pktmbuf_append(frame, static_cast<uint16_t>(bytes.size())), bytes.data(),
                bytes.size());
    return frame;
  }

  const LinkDirection direction_;
  uint64_t now_ns_ = 0;
  dataplane::QueuePairOrigin origin_;  // of kOwnQpn
  LinkTap tap_{0, &now_ns_, TestDataplane().frames().mempool(), View()};
  std::optional<Fault> fault_;
  std::optional<FaultLane> lane_;
  std::unique_ptr<FaultTable> table_;
  size_t last_bytes_ = 0;
};

TEST_F(FaultTapTest, DropsDuplicatesDelaysAndCuts) {
  FaultSettings settings;
  settings.match.psn = 1;
  settings.actions.copies = 2;
  Use(settings);
  EXPECT_EQ(Send({0, 1, 2}), (Psns{0, 1, 2, 1, 1}));
  UseNone();
  settings.actions = {};
  settings.actions.delay_ns = 100;
  Use(settings);
  EXPECT_EQ(Send({0, 1, 2}), (Psns{0, 2}));
  now_ns_ = 99;
  EXPECT_EQ(Send({}), Psns{});
  now_ns_ = 100;
  EXPECT_EQ(Send({}), Psns{1});
  UseNone();
  settings.actions = {};
  settings.actions.cut_bytes = 5;
  Use(settings);
  EXPECT_EQ(Send({1}), Psns{1});
  EXPECT_EQ(last_bytes_, Packet(roce::Opcode::kRcSendOnly, 1).size() - 5);
  UseNone();
  Use(Drop());
  EXPECT_EQ(Send({0, 1, 2}), Psns{});
}

TEST_F(FaultTapTest, ExactlySoManyPacketsOvertake) {
  FaultSettings settings;
  settings.match.psn = 1;
  settings.match.when.times = 1;
  settings.actions.overtaken_by = 3;
  Use(settings);
  EXPECT_EQ(Send({0, 1, 2, 3, 4, 5, 6}), (Psns{0, 2, 3, 4, 1, 5, 6}));
  EXPECT_EQ(Send({7, 8}), (Psns{7, 8}));
}

TEST_F(FaultTapTest, PacketsOvertakeAcrossBursts) {
  FaultSettings settings;
  settings.match.psn = 1;
  settings.actions.overtaken_by = 3;
  Use(settings);
  EXPECT_EQ(Send({0, 1}), Psns{0});
  EXPECT_EQ(Send({2, 3}), (Psns{2, 3}));
  EXPECT_EQ(Send({4, 5}), (Psns{4, 1, 5}));
  EXPECT_EQ(Send({6}), Psns{6});
}

TEST_F(FaultTapTest, APacketThatNothingOvertakesGoesOnInTheEnd) {
  FaultSettings settings;
  settings.match.psn = 1;
  settings.actions.overtaken_by = 3;
  Use(settings);
  EXPECT_EQ(Send({1, 2}), Psns{2});
  EXPECT_EQ(tap_.next_due(), dataplane::OvertakenFrames::kMostNs);
  now_ns_ = dataplane::OvertakenFrames::kMostNs;
  EXPECT_TRUE(tap_.SendIsDue());
  EXPECT_EQ(Send({}), Psns{1});
  UseNone();
  EXPECT_TRUE(tap_.IsIdle());
}

TEST_F(FaultTapTest, PacketsThatAreDelayedOvertakeToo) {
  dataplane::ImpairmentSettings delay;
  delay.delay_ns = 10;
  dataplane::Impairment rule(delay, 0);
  tap_.AddRule(kShard, delay.direction, rule);
  FaultSettings settings;
  settings.match.psn = 1;
  settings.actions.overtaken_by = 2;
  Use(settings);
  EXPECT_EQ(Send({0, 1, 2, 3, 4}), Psns{});
  now_ns_ = 10;
  EXPECT_EQ(Send({}), (Psns{0, 2, 3, 1, 4}));
  tap_.RemoveRule(kShard, rule);
}

TEST_F(FaultTapTest, FramesThatWaitAreBounded) {
  FaultSettings settings;
  settings.actions.overtaken_by = 1000;
  Use(settings);
  for (uint32_t i = 0; i < dataplane::OvertakenFrames::kCapacity; ++i) {
    EXPECT_EQ(Send({i}), Psns{});
  }
  EXPECT_EQ(Send({99}), Psns{99});
  EXPECT_EQ(fault_->Snapshot().no_room, 1u);
}

TEST_F(FaultTapTest, WithoutRoomTheFaultThatCopiesCounts) {
  FaultSettings settings;
  settings.actions.marks_ecn = true;
  Use(settings);
  settings.actions = {};
  settings.actions.copies = dataplane::FaultActions::kMostCopies;
  settings.actions.delay_ns = 1000;
  Fault copies(settings, 0);
  FaultLane lane(copies);
  UseLanes({&*lane_, &lane});
  const uint32_t held = dataplane::DelayQueue::kCapacity / (settings.actions.copies + 1);
  for (uint32_t i = 0; i <= held; ++i) EXPECT_EQ(Send({i}), Psns{});
  EXPECT_EQ(fault_->Snapshot().no_room, 0u);
  EXPECT_GT(copies.Snapshot().no_room, 0u);
}

// ---- Which queue pairs ----

TEST_F(FaultTapTest, NamesTheQueuePairThatSends) {
  FaultSettings settings = Drop();
  settings.match.filter.qpns = {roce::Qpn(kOwnQpn)};
  Use(settings);
  EXPECT_EQ(Send({1}), Psns{}) << "sent by it, to another";
  settings.match.filter.qpns = {roce::Qpn(kQpn)};
  Use(settings);
  EXPECT_EQ(Send({1}), Psns{}) << "sent to it";
  settings.match.filter.qpns = {roce::Qpn(kQpn + 1)};
  Use(settings);
  EXPECT_EQ(Send({1}), Psns{1});
  settings.match.filter.qpns = {roce::Qpn(kOwnQpn)};
  settings.match.filter.opcodes.set(static_cast<size_t>(roce::Opcode::kRcWriteOnly));
  Use(settings);
  EXPECT_EQ(Send({1}), Psns{1}) << "another opcode";
}

TEST_F(FaultTapTest, NamesTheProgramOfTheQueuePair) {
  origin_.SetProgram("a_program_of_a_name_that_is_cut", 7);
  FaultSettings settings = Drop();
  const auto is_hit = [&](const char* name, uint32_t pid) {
    settings.match.queue_pair.program = {.name = name, .pid = pid};
    Use(settings);
    return Send({1}).empty();
  };
  EXPECT_TRUE(is_hit("a_program_of_a_", 0));
  EXPECT_TRUE(is_hit("", 7));
  EXPECT_TRUE(is_hit("a_program_of_a_", 7));
  EXPECT_FALSE(is_hit("a_program", 0));
  EXPECT_FALSE(is_hit("", 8));
  EXPECT_FALSE(is_hit("a_program_of_a_", 8));
}

TEST_F(FaultTapTest, NamesTheNthQueuePairThatIsCreated) {
  FaultSettings settings = Drop();
  settings.match.queue_pair = {.program = {.name = "rping"}, .created = 2};
  Use(settings);
  origin_.SetProgram("rping", 1);
  origin_.number = 8;
  EXPECT_EQ(Send({1}), Psns{1}) << "it was there before";
  dataplane::QueuePairOrigin other = origin_;
  other.SetProgram("ucmatose", 1);
  for (const uint64_t number : {5, 6}) {
    other.number = number;
    fault_->choice.NoteCreated(other);
  }
  dataplane::QueuePairOrigin first = origin_;
  first.number = 7;
  fault_->choice.NoteCreated(first);
  EXPECT_EQ(Send({1}), Psns{1});
  fault_->choice.NoteCreated(origin_);
  EXPECT_EQ(Send({1}), Psns{}) << "the second of its program";
  EXPECT_TRUE(fault_->choice.Named(origin_));
  EXPECT_FALSE(fault_->choice.Named(first));
  origin_.number = 9;
  fault_->choice.NoteCreated(origin_);
  EXPECT_EQ(Send({1}), Psns{1}) << "the third";
}

TEST(FaultMatchTest, TheAddressAtTheOtherEnd) {
  for (const bool is_ipv6 : {false, true}) {
    Bytes bytes = Packet(roce::Opcode::kRcSendOnly, 1, kQpn, is_ipv6);
    const roce::Gid from = is_ipv6 ? roce::Gid{{0xFD, 1}} : roce::Gid::FromIpv4({{10, 0, 0, 1}});
    const roce::Gid to = is_ipv6 ? roce::Gid{{0xFD, 2}} : roce::Gid::FromIpv4({{10, 0, 0, 2}});
    const auto is_hit = [&](LinkDirection direction, const roce::Gid& peer) {
      FaultSettings settings = Drop();
      settings.match.direction = direction;
      settings.match.peer = peer;
      Fault fault(settings, 0);
      FaultLane lane(fault);
      FaultFate fate;
      lane.Apply(FrameOf(bytes, direction), fate);
      return fate.is_dropped;
    };
    EXPECT_TRUE(is_hit(LinkDirection::kOut, to));
    EXPECT_FALSE(is_hit(LinkDirection::kOut, from));
    EXPECT_TRUE(is_hit(LinkDirection::kIn, from));
    EXPECT_FALSE(is_hit(LinkDirection::kIn, to));
  }
}

// ---- Many faults ----

// A table finds the faults that apply one after the other would find.
TEST(FaultTableTest, FindsWhatEachFaultAloneWouldMatch) {
  std::vector<FaultSettings> all;
  for (uint32_t i = 0; i < FaultTable::kMost; ++i) {
    FaultSettings settings;
    settings.actions.copies = 1;
    if (i % 3 == 0) settings.match.filter.qpns = {roce::Qpn(i % 50), roce::Qpn(i)};
    if (i % 5 == 0) settings.match.psn = i % 70;
    if (i % 7 == 0) settings.match.filter.opcodes.set(i % 24);
    if (i % 11 == 0) settings.match.filter.peers = {roce::Qpn(3 * i)};
    if (i % 13 == 0) settings.match.psn_from_first = settings.match.psn.has_value();
    if (i % 17 == 0) settings.match.cm_message = 0x10;
    all.push_back(settings);
  }
  std::vector<std::unique_ptr<Fault>> together, alone;
  std::vector<std::unique_ptr<FaultLane>> together_lanes, alone_lanes;
  std::vector<FaultTable::Entry> entries;
  for (const FaultSettings& settings : all) {
    together.push_back(std::make_unique<Fault>(settings, 0));
    together_lanes.push_back(std::make_unique<FaultLane>(*together.back()));
    alone.push_back(std::make_unique<Fault>(settings, 0));
    alone_lanes.push_back(std::make_unique<FaultLane>(*alone.back()));
    entries.push_back({together_lanes.back().get(), settings.match.filter.qpns});
  }
  const FaultTable table(entries);
  uint64_t hits = 0;
  for (uint32_t i = 0; i < 3000; ++i) {
    Bytes bytes = i % 10 == 0 ? Datagram(i % 4, Bytes(256, std::byte{0x10}))
                              : Packet(static_cast<roce::Opcode>(i % 18), i % 80, i % 60);
    FaultFrame frame = FrameOf(bytes, i % 2 == 0 ? LinkDirection::kIn : LinkDirection::kOut);
    frame.own = roce::Qpn(i % 61);
    FaultFate one, each;
    table.VisitAll(frame, [&](FaultLane& lane) {
      lane.Apply(frame, one);
      return true;
    });
    for (const auto& lane : alone_lanes) lane->Apply(frame, each);
    EXPECT_EQ(one.copies, each.copies) << i;
    hits += each.copies;
  }
  EXPECT_GT(hits, 10'000u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(together[i]->Snapshot().matched, alone[i]->Snapshot().matched) << i;
  }
}

TEST(FaultTableTest, AFaultSeesWhatEarlierOnesHaveChanged) {
  FaultSettings change;
  change.actions.changes = {{roce::FindPacketField("bth.psn"), false, 7}};
  FaultSettings wanted = Drop();
  wanted.match.psn = 7;
  FaultSettings former = Drop();
  former.match.psn = 1;
  Fault faults[] = {Fault(former, 0), Fault(change, 0), Fault(former, 0), Fault(wanted, 0)};
  std::vector<FaultLane> lanes;
  lanes.reserve(4);
  std::vector<FaultTable::Entry> entries;
  for (Fault& fault : faults) entries.push_back({&lanes.emplace_back(fault), {}});
  const FaultTable table(std::span<const FaultTable::Entry>(entries).subspan(1));
  Bytes bytes = Packet(roce::Opcode::kRcSendOnly, 1);
  FaultFate fate;
  table.VisitAll(FrameOf(bytes), [&](FaultLane& lane) {
    lane.Apply(FrameOf(bytes), fate);
    return !fate.is_dropped;
  });
  EXPECT_TRUE(fate.is_dropped);
  EXPECT_EQ(faults[2].Snapshot().matched, 0u);
  EXPECT_EQ(faults[3].Snapshot().hit, 1u);
}

TEST(FaultTableTest, AQueuePairThatIsGoneIsNotNamedAnyMore) {
  FaultSettings settings = Drop();
  settings.match.filter.qpns = {roce::Qpn(kQpn), roce::Qpn(kQpn + 1)};
  Fault fault(settings, 0);
  FaultLane lane(fault);
  const std::vector<roce::Qpn> left = {roce::Qpn(kQpn + 1)};
  const std::vector<FaultTable::Entry> entries = {{&lane, left}};
  const FaultTable table(entries);
  for (const uint32_t qpn : {kQpn, kQpn + 1}) {
    Bytes bytes = Packet(roce::Opcode::kRcSendOnly, 1, qpn);
    FaultFate fate;
    table.VisitAll(FrameOf(bytes), [&](FaultLane& each) {
      each.Apply(FrameOf(bytes), fate);
      return true;
    });
    EXPECT_EQ(fate.is_dropped, qpn == kQpn + 1);
  }
}

// ---- Injected frames ----

FaultSettings Inject(dataplane::Injection::Kind kind, uint8_t syndrome = 0) {
  FaultSettings settings;
  settings.actions.injection.kind = kind;
  settings.actions.injection.syndrome = syndrome;
  return settings;
}

TEST_F(FaultTapTest, AnswersToARequestGoBackToItsSender) {
  constexpr uint8_t kNakAccess = 0x62;
  for (const LinkDirection direction : {LinkDirection::kOut, LinkDirection::kIn}) {
    for (const bool is_cnp : {false, true}) {
      FaultSettings settings = Inject(
          is_cnp ? dataplane::Injection::Kind::kCnp : dataplane::Injection::Kind::kNak, kNakAccess);
      settings.match.direction = direction;
      Use(settings);
      const bool is_out = direction == LinkDirection::kOut;
      const Bytes request = Packet(roce::Opcode::kRcSendOnly, 7, is_out ? kQpn : kOwnQpn);
      EXPECT_EQ(Pass(direction, {request}).size(), 1u) << "the packet passes";
      const LinkDirection back = is_out ? LinkDirection::kIn : LinkDirection::kOut;
      const std::vector<Bytes> answers = Pass(back, {});
      ASSERT_EQ(answers.size(), 1u);
      EXPECT_TRUE(IcrcIsRight(answers[0]));
      roce::Packet packet;
      ASSERT_EQ(roce::ParsePacket(answers[0], packet), roce::DropReason::kNone);
      EXPECT_EQ(packet.info->opcode, is_cnp ? roce::Opcode::kCnp : roce::Opcode::kRcAcknowledge);
      EXPECT_EQ(packet.dest_qpn, roce::Qpn(is_out ? kOwnQpn : kQpn));
      EXPECT_EQ(packet.src_gid, roce::Gid::FromIpv4({{10, 0, 0, 2}})) << "the way back";
      if (!is_cnp) {
        EXPECT_EQ(packet.psn, roce::Psn(7));
        EXPECT_EQ(packet.ext.aeth.syndrome, kNakAccess);
      }
      UseNone();
    }
  }
}

TEST_F(FaultTapTest, AnswersBesideAResponseGoInFrontOfIt) {
  FaultSettings settings = Inject(dataplane::Injection::Kind::kNak, 0x60);
  settings.match.psn = 2;
  settings.actions.changes = {{roce::FindPacketField("aeth.syndrome"), false, 0x24}};
  settings.actions.fixes_icrc = true;
  Use(settings);
  const auto ack = [](uint32_t psn) { return Packet(roce::Opcode::kRcAcknowledge, psn); };
  const std::vector<Bytes> out = Pass(LinkDirection::kOut, {ack(1), ack(2), ack(3)});
  ASSERT_EQ(out.size(), 4u);
  EXPECT_EQ(out[0], ack(1));
  EXPECT_EQ(FieldOf(out[1], "aeth.syndrome"), 0x24u) << "changed, not the packet";
  EXPECT_EQ(FieldOf(out[1], "bth.psn"), 2u);
  EXPECT_TRUE(IcrcIsRight(out[1]));
  EXPECT_EQ(out[2], ack(2));
  EXPECT_EQ(out[3], ack(3));
  // Instead of the packet.
  settings.actions.drops = true;
  Use(settings);
  EXPECT_EQ(Pass(LinkDirection::kOut, {ack(1), ack(2), ack(3)}).size(), 3u);
}

TEST_F(FaultTapTest, AStaleDuplicateIsTheFirstPacketThatMatched) {
  FaultSettings settings = Inject(dataplane::Injection::Kind::kStale);
  settings.match.when.nth = 3;
  settings.match.when.times = 1;
  Use(settings);
  EXPECT_EQ(Send({5, 6}), (Psns{5, 6}));
  EXPECT_EQ(Send({7, 8}), (Psns{5, 7, 8}));
  EXPECT_EQ(Send({9}), Psns{9});
}

TEST_F(FaultTapTest, AFrameOfACaptureIsSentAsItIs) {
  FaultSettings settings = Inject(dataplane::Injection::Kind::kFrame);
  settings.actions.injection.bytes = Bytes(60, std::byte{0xAB});
  settings.match.psn = 1;
  Use(settings);
  const std::vector<Bytes> out = Pass(LinkDirection::kOut, {Packet(roce::Opcode::kRcSendOnly, 1)});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0], settings.actions.injection.bytes);
  EXPECT_EQ(fault_->Snapshot().not_there, 0u);
  // A short frame is padded, as every frame on Ethernet is.
  settings.actions.injection.bytes.resize(42);
  Use(settings);
  Bytes padded = settings.actions.injection.bytes;
  padded.resize(60);
  EXPECT_EQ(Pass(LinkDirection::kOut, {Packet(roce::Opcode::kRcSendOnly, 1)}).front(), padded);
  // Its fields cannot be changed: it is no RoCE packet.
  settings.actions.changes = {{roce::FindPacketField("bth.psn"), false, 1}};
  Use(settings);
  EXPECT_EQ(Pass(LinkDirection::kOut, {Packet(roce::Opcode::kRcSendOnly, 1)}).size(), 2u);
  EXPECT_EQ(fault_->Snapshot().not_there, 1u);
}

TEST_F(FaultTapTest, WhatCannotBeMadeFromAPacketIsCounted) {
  const auto not_there = [&](const FaultSettings& settings, const Bytes& packet) {
    Use(settings);
    EXPECT_EQ(Pass(LinkDirection::kOut, {packet}).size(), 1u);
    EXPECT_TRUE(Pass(LinkDirection::kIn, {}).empty());
    return fault_->Snapshot().not_there;
  };
  const Bytes datagram = Datagram(kQpn, Bytes(8));  // its source queue pair is 0
  EXPECT_EQ(not_there(Inject(dataplane::Injection::Kind::kNak), datagram), 1u);
  EXPECT_EQ(not_there(Inject(dataplane::Injection::Kind::kMad), datagram), 1u);
  EXPECT_EQ(not_there(Inject(dataplane::Injection::Kind::kCnp), Packet(roce::Opcode::kCnp, 0)), 1u);
  // IPv6 addresses of two families, which the network may send.
  Bytes mixed = Packet(roce::Opcode::kRcSendOnly, 1, kQpn, true);
  std::fill_n(mixed.begin() + roce::EthernetHeader::kBytes + 8, 10, std::byte{0});
  std::fill_n(mixed.begin() + roce::EthernetHeader::kBytes + 18, 2, std::byte{0xFF});
  EXPECT_EQ(not_there(Inject(dataplane::Injection::Kind::kCnp), mixed), 1u);
}

TEST_F(FaultTapTest, DamagedFramesInjectNothingWrong) {
  using Kind = dataplane::Injection::Kind;
  for (const Kind kind : {Kind::kCnp, Kind::kNak, Kind::kStale, Kind::kMad, Kind::kFrame}) {
    FaultSettings settings = Inject(kind);
    if (kind == Kind::kMad) settings.actions.injection.bytes = Bytes(256);
    Use(settings);
    for (const Bytes& whole :
         {Packet(roce::Opcode::kRcAtomicAcknowledge, 1), Datagram(1, Bytes(256)),
          Packet(roce::Opcode::kXrcSendOnly, 1, kQpn, true)}) {
      for (size_t length = roce::EthernetHeader::kBytes; length <= whole.size(); ++length) {
        Pass(LinkDirection::kOut,
             {Bytes(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length))});
        Pass(LinkDirection::kIn, {});
      }
    }
    UseNone();
  }
}

}  // namespace
}  // namespace roci::testing
