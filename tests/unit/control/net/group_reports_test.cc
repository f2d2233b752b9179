// Membership reports, compared with the wire format of the RFCs, and answers to hand-made queries.
#include "control/net/group_reports.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "roce/headers.h"

namespace roci::control {
namespace {

using roce::LoadBe;
using roce::StoreBe;

constexpr roce::Mac kMac{{2, 0, 0, 0, 0, 0xA}};
constexpr roce::TimeNs kSecond = 1'000'000'000;

std::string Hex(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[std::to_integer<int>(byte) >> 4];
    out += kDigits[std::to_integer<int>(byte) & 15];
  }
  return out;
}

uint16_t Sum(std::span<const std::byte> bytes, uint32_t sum = 0) {
  for (size_t i = 0; i < bytes.size(); i += 2) sum += LoadBe<uint16_t>(bytes.data() + i);
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

// A router's query; group 0.0.0.0: about all groups. `tenths`: response time in tenths of a second.
Frame IgmpQuery(const char* group, uint8_t tenths, uint8_t ttl = 1) {
  Frame frame(60);
  roce::EthernetHeader{{{1, 0, 0x5E, 0, 0, 1}}, {{2, 0, 0, 0, 0, 0xB}}, 0x0800}.Store(frame.data());
  std::byte* ip = frame.data() + 14;
  roce::Ipv4Header header;
  header.total_length = 28;
  header.ttl = ttl;
  header.protocol = 2;
  header.src = ParseIp("10.0.0.254")->ToIpv4();
  header.dst = ParseIp("224.0.0.1")->ToIpv4();
  header.Store(ip);
  StoreBe<uint16_t>(ip + 10, 0);
  StoreBe<uint16_t>(ip + 10, Sum({ip, 20}));
  std::byte* igmp = ip + 20;
  igmp[0] = std::byte{0x11};
  igmp[1] = std::byte{tenths};
  std::memcpy(igmp + 4, ParseIp(group)->ToIpv4().bytes.data(), 4);
  StoreBe<uint16_t>(igmp + 2, Sum({igmp, 8}));
  return frame;
}

class GroupReportsTest : public testing::Test {
 protected:
  static std::vector<InterfaceAddress> Addresses() {
    return {*ParseInterfaceAddress("10.0.0.1/24"), *ParseInterfaceAddress("fd00::1/64")};
  }
  bool Join(const char* group, roce::TimeNs now = 0) {
    const roce::NetAddress address{*ParseIp(group)};
    Reference reference =
        reports_.Join(now, address, [this](const Frame& f) { sent_.push_back(f); });
    if (!reference.ok()) return false;
    references_.emplace(address, std::move(reference));
    return true;
  }
  void Leave(const char* group) {
    const auto it = references_.find({*ParseIp(group)});
    ASSERT_NE(it, references_.end());
    reports_.Leave(std::move(it->second), [this](const Frame& f) { sent_.push_back(f); });
    references_.erase(it);
  }
  // Runs all timers up to `until`.
  void Run(roce::TimeNs until) {
    while (reports_.NextTimeout() <= until) {
      reports_.HandleTimeout(reports_.NextTimeout(),
                             [this](const Frame& f) { sent_.push_back(f); });
    }
  }
  std::vector<Frame> Take() { return std::exchange(sent_, {}); }
  void FillUp() {
    for (uint32_t i = 0; reports_.size() < kMost; ++i) {
      roce::Gid gid = *ParseIp("239.0.0.0");
      gid.bytes[14] = static_cast<uint8_t>(i >> 8);
      gid.bytes[15] = static_cast<uint8_t>(i);
      ASSERT_TRUE(reports_.Join(0, {gid}, [](const Frame&) {}).ok());
    }
  }

  using Reference = GroupReports::Reference;
  static constexpr size_t kMost = 300;

  AddressTable table_{kMac, Addresses(), {}, {}};
  GroupReports reports_{table_, 1, kMost};
  std::multimap<roce::NetAddress, Reference> references_;
  std::vector<Frame> sent_;
};

TEST_F(GroupReportsTest, AnIpv4MembershipIsReportedTwiceAndLeft) {
  ASSERT_TRUE(Join("239.1.2.3"));
  ASSERT_EQ(sent_.size(), 1u);
  // RFC 2236 with the router alert option of RFC 2113; checksums by hand.
  const std::byte* ip = sent_[0].data() + 14;
  EXPECT_EQ(Hex({sent_[0].data(), 14}), "01005e01020302000000000a0800");
  EXPECT_EQ(ip[0], std::byte{0x46});
  EXPECT_EQ(LoadBe<uint16_t>(ip + 2), 32);
  EXPECT_EQ(Hex({ip + 8, 2}), "0102") << "TTL 1, IGMP";
  EXPECT_EQ(Sum({ip, 24}), 0) << "header checksum";
  EXPECT_EQ(Hex({ip + 12, 12}), "0a000001ef01020394040000");
  EXPECT_EQ(Hex({ip + 24, 8}), "1600f8faef010203") << "0x1600 + 0xef01 + 0x0203 = 0x10704";
  Run(10 * kSecond);
  EXPECT_EQ(Take().size(), 2u) << "repeated once";
  EXPECT_EQ(reports_.NextTimeout(), roce::kNever);
  ASSERT_TRUE(Join("239.1.2.3"));
  Leave("239.1.2.3");
  EXPECT_TRUE(Take().empty()) << "there is another user";
  Leave("239.1.2.3");
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(Hex({sent_[0].data(), 6}), "01005e000002") << "to all routers";
  EXPECT_EQ(sent_[0][14 + 24], std::byte{0x17});
  EXPECT_EQ(reports_.size(), 0u);
}

TEST_F(GroupReportsTest, AnIpv6MembershipIsReportedFromTheLinkLocalAddress) {
  ASSERT_TRUE(Join("ff0e::4711"));
  ASSERT_EQ(sent_.size(), 1u);
  const std::byte* ip = sent_[0].data() + 14;
  EXPECT_EQ(Hex({sent_[0].data(), 14}), "33330000471102000000000a86dd");
  EXPECT_EQ(Hex({ip + 4, 4}), "00200001") << "32 bytes, hop-by-hop header, hop limit 1";
  EXPECT_EQ(Hex({ip + 8, 16}), Hex(std::as_bytes(std::span(table_.At(0)->gid.bytes))));
  EXPECT_EQ(Hex({ip + 24, 16}), "ff0e0000000000000000000000004711");
  EXPECT_EQ(Hex({ip + 40, 8}), "3a00050200000100");
  EXPECT_EQ(ip[48], std::byte{131});
  Frame pseudo(ip + 8, ip + 40);
  pseudo.insert(pseudo.end(), ip + 48, ip + 72);
  EXPECT_EQ(Sum(pseudo, 24 + 58), 0) << "checksum with the pseudo header";
  Take();
  Leave("ff0e::4711");
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(sent_[0][14 + 48], std::byte{132});
  EXPECT_EQ(Hex({sent_[0].data(), 6}), "333300000002");
}

TEST_F(GroupReportsTest, QueriesAreAnsweredInTimeForTheirGroups) {
  Join("239.1.2.3");
  Join("239.4.5.6");
  Join("ff0e::1");
  Run(20 * kSecond);
  Take();
  const roce::TimeNs now = 30 * kSecond;
  EXPECT_EQ(reports_.HandleFrame(now, IgmpQuery("0.0.0.0", 20)), SlowPathReason::kHandled);
  Run(now + 2 * kSecond);
  EXPECT_EQ(Take().size(), 2u) << "both of IPv4";
  EXPECT_EQ(reports_.HandleFrame(now, IgmpQuery("239.4.5.6", 10)), SlowPathReason::kHandled);
  Run(now + kSecond);
  ASSERT_EQ(sent_.size(), 1u);
  EXPECT_EQ(Hex({sent_[0].data(), 6}), "01005e040506");
  Take();
  // Another member reports first.
  reports_.HandleFrame(now, IgmpQuery("239.1.2.3", 100));
  GroupReports other(table_, 2, kMost);
  other.Join(0, {*ParseIp("239.1.2.3")}, [&](const Frame& report) {
    EXPECT_EQ(reports_.HandleFrame(now, report), SlowPathReason::kHandled);
  });
  Run(now + 20 * kSecond);
  EXPECT_TRUE(Take().empty());
}

// A router's query about all groups with a response time of 1 s.
TEST_F(GroupReportsTest, Ipv6QueriesAreAnswered) {
  Join("ff0e::1");
  Frame query = Take().at(0);
  Run(20 * kSecond);
  Take();
  std::byte* ip = query.data() + 14;
  ip[23] ^= std::byte{1};  // another host's link-local address
  std::byte* mld = ip + 48;
  std::memset(mld, 0, 24);
  mld[0] = std::byte{130};
  StoreBe<uint16_t>(mld + 4, 1000);
  EXPECT_EQ(reports_.HandleFrame(0, query), SlowPathReason::kIcmpChecksum);
  Frame pseudo(ip + 8, ip + 40);
  pseudo.insert(pseudo.end(), mld, mld + 24);
  StoreBe<uint16_t>(mld + 2, Sum(pseudo, 24 + 58));
  EXPECT_EQ(reports_.HandleFrame(0, query), SlowPathReason::kHandled);
  Run(kSecond);
  EXPECT_EQ(Take().size(), 1u);
  ip[7] = std::byte{64};
  EXPECT_EQ(reports_.HandleFrame(0, query), SlowPathReason::kGroupMalformed) << "hop limit";
}

TEST_F(GroupReportsTest, RefusesMalformedQueriesAndIgnoresOtherFrames) {
  Join("239.1.2.3");
  Run(20 * kSecond);
  Take();
  EXPECT_EQ(reports_.HandleFrame(0, IgmpQuery("0.0.0.0", 1, 64)), SlowPathReason::kGroupMalformed);
  EXPECT_EQ(reports_.HandleFrame(0, IgmpQuery("10.0.0.1", 1)), SlowPathReason::kGroupMalformed);
  Frame damaged = IgmpQuery("0.0.0.0", 1);
  damaged[14 + 21] ^= std::byte{1};
  EXPECT_EQ(reports_.HandleFrame(0, damaged), SlowPathReason::kIcmpChecksum);
  for (size_t bytes = 0; bytes < 42; ++bytes) {
    const Frame query = IgmpQuery("0.0.0.0", 1);
    EXPECT_NE(reports_.HandleFrame(0, std::span(query).first(bytes)), SlowPathReason::kHandled);
  }
  EXPECT_EQ(reports_.HandleFrame(0, BuildArp(kBroadcastMac, {})), std::nullopt);
  Run(20 * kSecond);
  EXPECT_TRUE(Take().empty());
}

TEST_F(GroupReportsTest, TheAllNodesGroupIsNotReportedAndTheTableIsBounded) {
  EXPECT_TRUE(Join("224.0.0.1"));
  EXPECT_TRUE(Join("ff02::1"));
  EXPECT_TRUE(Join("ff01::5"));
  EXPECT_TRUE(Take().empty());
  FillUp();
  EXPECT_FALSE(Join("239.255.0.1"));
}

// A join that failed leaves nothing to release when the group has another member later.
TEST_F(GroupReportsTest, AFailedJoinReleasesNoOtherMembersReference) {
  ASSERT_TRUE(Join("239.255.0.1"));
  FillUp();
  Reference failed =
      reports_.Join(0, {*ParseIp("239.255.0.2")}, [](const Frame&) { FAIL() << "a report"; });
  EXPECT_FALSE(failed.ok());
  Leave("239.255.0.1");
  ASSERT_TRUE(Join("239.255.0.2"));
  Take();
  reports_.Leave(std::move(failed), [this](const Frame& f) { sent_.push_back(f); });
  EXPECT_TRUE(Take().empty()) << "the other member has left";
  Leave("239.255.0.2");
  EXPECT_EQ(Take().size(), 1u);
}

TEST_F(GroupReportsTest, AMembershipInAVlanIsToldThere) {
  VlanSettings vlan;
  vlan.id = 100;
  vlan.addresses = {*ParseInterfaceAddress("10.1.0.1/24")};
  const AddressTable table(kMac, Addresses(), {}, {}, {&vlan, 1});
  GroupReports reports(table, 1, kMost);
  std::vector<Frame> sent;
  const auto send = [&](const Frame& frame) { sent.push_back(frame); };
  Reference in_100 = reports.Join(0, {*ParseIp("239.1.2.3"), 100}, send);
  ASSERT_TRUE(in_100.ok());
  ASSERT_TRUE(reports.Join(0, {*ParseIp("239.1.2.3"), 0}, send).ok());
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(Hex({sent[0].data() + 12, 6}), "810000640800");
  EXPECT_EQ(Hex({sent[0].data() + 18 + 12, 4}), "0a010001") << "the VLAN's own address";
  EXPECT_EQ(Hex({sent[1].data() + 12, 2}), "0800");
  EXPECT_EQ(Hex({sent[1].data() + 14 + 12, 4}), "0a000001");
  while (reports.NextTimeout() != roce::kNever) reports.HandleTimeout(reports.NextTimeout(), send);
  // A report in one VLAN does not suppress a report in another.
  const Frame in_vlan = sent[0];
  EXPECT_EQ(reports.HandleFrame(0, in_vlan), SlowPathReason::kHandled);
  Frame elsewhere = in_vlan;
  roce::StoreBe<uint16_t>(elsewhere.data() + 14, 101);
  EXPECT_EQ(reports.HandleFrame(0, elsewhere), SlowPathReason::kGroupNotForUs);
  sent.clear();
  reports.Leave(std::move(in_100), send);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(Hex({sent[0].data() + 12, 4}), "81000064");
  EXPECT_EQ(reports.size(), 1u);
}

}  // namespace
}  // namespace roci::control
