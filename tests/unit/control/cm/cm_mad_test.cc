// The wire format of the communication manager's messages and addresses, against captures of
// Linux's rdma_rxe (tests/vectors/rxe).
#include <gtest/gtest.h>

#include <map>

#include "control/cm/gsi.h"
#include "control/cm/ip_service.h"
#include "control/cm/mad.h"
#include "control/net/ip_text.h"
#include "roce/parse.h"
#include "tests/unit/roce/vectors.h"

namespace roci::control::cm {
namespace {

struct Recorded {
  std::string name;
  roce::Path reply;
  MadBytes mad;
  Message message;
};

// Every datagram to QP 1 of every capture.
std::vector<Recorded> RecordedMads() {
  std::vector<Recorded> all;
  for (const roce::NamedFrame& frame : roce::AllCapturedFrames()) {
    roce::Packet packet;
    if (roce::ParsePacket(frame.bytes, packet) != roce::DropReason::kNone) continue;
    if (packet.dest_qpn != roce::kGsiQpn) continue;
    EXPECT_EQ(CheckGsiPacket(packet), MadReason::kNone) << frame.name;
    Recorded recorded;
    recorded.name = frame.name;
    recorded.reply = ReplyPath(packet);
    std::copy(packet.payload.begin(), packet.payload.end(), recorded.mad.begin());
    EXPECT_EQ(ParseMad(packet.payload, recorded.message), MadReason::kNone) << frame.name;
    all.push_back(recorded);
  }
  return all;
}

TEST(CmMad, RebuildsParsedMessagesOfLinux) {
  std::map<MessageType, int> seen;
  for (const Recorded& recorded : RecordedMads()) {
    EXPECT_EQ(BuildMad(recorded.message), recorded.mad) << recorded.name;
    ++seen[recorded.message.type()];
  }
  for (const MessageType type :
       {MessageType::kReq, MessageType::kRep, MessageType::kRtu, MessageType::kRej,
        MessageType::kDreq, MessageType::kDrep, MessageType::kSidrReq, MessageType::kSidrRep}) {
    EXPECT_GT(seen[type], 0) << static_cast<int>(type);
  }
}

TEST(CmMad, ReadsLinuxRequests) {
  int requests = 0;
  for (const Recorded& recorded : RecordedMads()) {
    const Req* req = std::get_if<Req>(&recorded.message.body);
    if (req == nullptr) continue;
    ++requests;
    EXPECT_EQ(req->primary.local_gid, recorded.reply.dst_gid) << recorded.name;
    EXPECT_EQ(req->primary.remote_gid, recorded.reply.src_gid) << recorded.name;
    EXPECT_EQ(req->pkey, 0xFFFF);
    EXPECT_EQ(req->max_cm_retries, 15);
    EXPECT_EQ(req->transport_service, 0);
    const std::optional<IpService> service = IpServiceOf(req->service_id);
    ASSERT_TRUE(service.has_value()) << recorded.name;
    EXPECT_EQ(service->space, PortSpace::kTcp);
    EXPECT_EQ(ServiceIdOf(*service), req->service_id);
    const std::optional<IpHeader> header = ParseIpHeader(req->private_data);
    ASSERT_TRUE(header.has_value());
    EXPECT_EQ(header->source, recorded.reply.dst_gid);
    EXPECT_EQ(header->destination, recorded.reply.src_gid);
    const IpHeaderBytes bytes = BuildIpHeader(*header);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), req->private_data.begin()));
  }
  EXPECT_GT(requests, 0);
}

TEST(CmMad, MakesFramesThatPassTheGate) {
  for (const char* text : {"10.0.0.", "fd00::"}) {
    roce::Path path;
    path.src_mac = {{2, 0, 0, 0, 0, 1}};
    path.dst_mac = {{2, 0, 0, 0, 0, 2}};
    path.src_gid = *ParseIp(std::string(text) + "1");
    path.dst_gid = *ParseIp(std::string(text) + "2");
    const MadBytes mad = BuildMad({7, Rtu{1, 2, {}}});
    const std::vector<std::byte> frame = BuildGsiFrame(path, mad, 3);
    roce::Packet packet;
    ASSERT_EQ(roce::ParsePacket(frame, packet), roce::DropReason::kNone);
    EXPECT_EQ(packet.dest_qpn, roce::kGsiQpn);
    EXPECT_EQ(CheckGsiPacket(packet), MadReason::kNone);
    EXPECT_TRUE(std::equal(mad.begin(), mad.end(), packet.payload.begin()));
    EXPECT_EQ(ReplyPath(packet).dst_mac, path.src_mac);
    EXPECT_EQ(ReplyPath(packet).src_gid, path.dst_gid);
    packet.ext.deth.src_qpn = roce::Qpn(2);
    EXPECT_EQ(CheckGsiPacket(packet), MadReason::kSource);
    packet.ext.deth.src_qpn = roce::kGsiQpn;
    packet.ext.deth.qkey ^= 1;
    EXPECT_EQ(CheckGsiPacket(packet), MadReason::kQkey);
  }
}

// No fields overlap: parsing and building a MAD of random bytes gives the same MAD except reserved
// bits, and a second round changes nothing.
TEST(CmMad, KeepsEveryField) {
  uint64_t random = 1;
  for (uint16_t attribute = kFirstMessage; attribute <= kLastMessage; ++attribute) {
    for (int round = 0; round < 50; ++round) {
      MadBytes mad = BuildMad({0, Rtu{}});
      for (size_t i = 20; i < mad.size(); ++i) {
        random = random * 6364136223846793005 + 1442695040888963407;
        mad[i] = static_cast<std::byte>(random >> 56);
      }
      mad[17] = static_cast<std::byte>(attribute);
      Message first;
      Message second;
      ASSERT_EQ(ParseMad(mad, first), MadReason::kNone);
      const MadBytes rebuilt = BuildMad(first);
      ASSERT_EQ(ParseMad(rebuilt, second), MadReason::kNone);
      EXPECT_EQ(first, second);
      for (size_t i = 20; i < mad.size(); ++i) {
        EXPECT_EQ(rebuilt[i] & ~mad[i], std::byte{0}) << "attribute " << attribute << " byte " << i;
      }
      // The attribute modifier is a field of messages with ECE only.
      const auto type = static_cast<MessageType>(attribute);
      const bool has_ece =
          type == MessageType::kReq || type == MessageType::kRep || type == MessageType::kSidrRep;
      EXPECT_EQ(std::equal(&mad[20], &mad[24], &rebuilt[20]), has_ece) << attribute;
    }
  }
}

TEST(CmMad, NamesTheErrorOfAMalformedMessage) {
  const struct {
    size_t byte;
    uint8_t value;
    MadReason reason;
  } cases[] = {{0, 2, MadReason::kBaseVersion},   {1, 3, MadReason::kManagementClass},
               {2, 1, MadReason::kClassVersion},  {3, 1, MadReason::kMethod},
               {17, 0x0F, MadReason::kAttribute}, {17, 0x1B, MadReason::kAttribute},
               {16, 1, MadReason::kAttribute}};
  for (const auto& wrong : cases) {
    MadBytes mad = BuildMad({0, Rtu{}});
    mad[wrong.byte] = static_cast<std::byte>(wrong.value);
    Message message;
    EXPECT_EQ(ParseMad(mad, message), wrong.reason);
  }
  const MadBytes mad = BuildMad({0, Rtu{}});
  Message message;
  EXPECT_EQ(ParseMad(std::span(mad).first(255), message), MadReason::kLength);
}

TEST(IpService, KnowsItsPortSpaces) {
  EXPECT_EQ(ServiceIdOf({PortSpace::kTcp, 7174}), 0x01061C06u);
  EXPECT_EQ(IpServiceOf(0x01111C06), (IpService{PortSpace::kUdp, 7174}));
  EXPECT_FALSE(IpServiceOf(0x01071C06).has_value());
  EXPECT_FALSE(IpServiceOf(0x1000000001061C06).has_value());
  IpHeaderBytes bytes = BuildIpHeader({1, *ParseIp("fd00::1"), *ParseIp("fd00::2")});
  EXPECT_EQ(ParseIpHeader(bytes)->destination, *ParseIp("fd00::2"));
  EXPECT_FALSE(ParseIpHeader(std::span(bytes).first(35)).has_value());
  bytes[1] = std::byte{0x50};
  EXPECT_FALSE(ParseIpHeader(bytes).has_value());
}

}  // namespace
}  // namespace roci::control::cm
