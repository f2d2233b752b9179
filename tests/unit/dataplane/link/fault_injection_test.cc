// Frames that exact faults inject.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/unit/dataplane/link/fault_rig.h"

namespace roci::testing::faults {
namespace {

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

// On a wire no lcore passes received frames on to another.
TEST_F(FaultTapTest, AFrameForAQueuePairOfAnotherLcoreIsCounted) {
  FaultSettings settings = Inject(dataplane::Injection::Kind::kFrame);
  settings.match.direction = LinkDirection::kIn;
  settings.match.psn = 1;
  for (const uint32_t qpn : {kOwnQpn, kQpnElsewhere}) {
    const bool is_elsewhere = qpn == kQpnElsewhere;
    settings.actions.injection.bytes = Packet(roce::Opcode::kRcSendOnly, 8, qpn);
    Use(settings);
    const Bytes hit = Packet(roce::Opcode::kRcSendOnly, 1, kOwnQpn);
    EXPECT_EQ(Pass(LinkDirection::kIn, {hit}).size(), is_elsewhere ? 1u : 2u);
    EXPECT_EQ(fault_->Snapshot().not_there, is_elsewhere ? 1u : 0u);
  }
}

// An ARP request of a capture takes the way of the control thread's own: to control threads, once.
TEST_F(FaultTapTest, AFrameThatIsNotRoceGoesToControlThreads) {
  FaultSettings settings = Inject(dataplane::Injection::Kind::kFrame);
  settings.actions.injection.bytes = Bytes(60, std::byte{0xFF});
  settings.match.psn = 1;
  Use(settings);
  EXPECT_EQ(Pass(LinkDirection::kOut, {Packet(roce::Opcode::kRcSendOnly, 1)}).size(), 2u);
  EXPECT_EQ(last_to_, (std::vector<uint8_t>{kControl, 0}));
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
}  // namespace roci::testing::faults
