// Exact faults: which packets they hit, and what they change.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/dataplane/link/fault_rig.h"

namespace roci::testing::faults {
namespace {

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

}  // namespace
}  // namespace roci::testing::faults
