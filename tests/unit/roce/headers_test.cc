#include "roce/headers.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <vector>

#include "roce/drop_reason.h"
#include "roce/packet.h"
#include "tests/unit/roce/rng.h"

namespace roci::roce {
namespace {

std::vector<std::byte> Bytes(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

// Stores to an odd address and compares the bytes.
template <class Header>
void ExpectStores(const Header& header, const std::vector<std::byte>& expected) {
  ASSERT_EQ(expected.size(), Header::kBytes);
  std::vector<std::byte> buffer(Header::kBytes + 2, std::byte{0xEE});
  header.Store(buffer.data() + 1);
  EXPECT_EQ(std::vector<std::byte>(buffer.begin() + 1, buffer.end() - 1), expected);
  EXPECT_EQ(buffer.front(), std::byte{0xEE});
  EXPECT_EQ(buffer.back(), std::byte{0xEE});
}

// Store(Load(x)) == x for random bytes under the mask of defined bits.
template <class Header>
void ExpectRoundTrip(const std::vector<std::byte>& defined_bits) {
  ASSERT_EQ(defined_bits.size(), Header::kBytes);
  Rng random(7);
  for (int round = 0; round < 1000; ++round) {
    std::vector<std::byte> in(Header::kBytes), out(Header::kBytes);
    for (std::byte& b : in) b = static_cast<std::byte>(random());
    Header::Load(in.data()).Store(out.data());
    for (size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], in[i] & defined_bits[i]) << i;
  }
}

std::vector<std::byte> AllBits(size_t n) { return std::vector<std::byte>(n, std::byte{0xFF}); }

TEST(Headers, RoundTrips) {
  ExpectRoundTrip<EthernetHeader>(AllBits(14));
  ExpectRoundTrip<VlanTag>(AllBits(4));
  ExpectRoundTrip<Ipv4Header>(AllBits(20));
  ExpectRoundTrip<Ipv6Header>(AllBits(40));
  ExpectRoundTrip<UdpHeader>(AllBits(8));
  ExpectRoundTrip<Bth>(
      Bytes({0xFF, 0xFF, 0xFF, 0xFF, 0xC0, 0xFF, 0xFF, 0xFF, 0x80, 0xFF, 0xFF, 0xFF}));
  ExpectRoundTrip<Deth>(Bytes({0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0xFF}));
  ExpectRoundTrip<XrcEth>(Bytes({0, 0xFF, 0xFF, 0xFF}));
  ExpectRoundTrip<Feth>(Bytes({0, 0, 0, 0x3F}));
  ExpectRoundTrip<Reth>(AllBits(16));
  ExpectRoundTrip<AtomicEth>(AllBits(28));
  ExpectRoundTrip<Aeth>(AllBits(4));
  ExpectRoundTrip<AtomicAckEth>(AllBits(8));
  ExpectRoundTrip<ImmDt>(AllBits(4));
  ExpectRoundTrip<Ieth>(AllBits(4));
}

TEST(Headers, BthBits) {
  Bth bth;
  bth.opcode = Opcode::kRcSendOnlyImm;
  bth.solicited = true;
  bth.pad_count = 3;
  bth.pkey = 0x8001;
  bth.becn = true;
  bth.dest_qpn = Qpn(0x123456);
  bth.ack_request = true;
  bth.psn = Psn(0xABCDEF);
  ExpectStores(bth,
               Bytes({0x05, 0xB0, 0x80, 0x01, 0x40, 0x12, 0x34, 0x56, 0x80, 0xAB, 0xCD, 0xEF}));
  bth.solicited = false;
  bth.mig_req = true;
  bth.pad_count = 0;
  bth.transport_version = 5;
  bth.becn = false;
  bth.fecn = true;
  bth.ack_request = false;
  ExpectStores(bth,
               Bytes({0x05, 0x45, 0x80, 0x01, 0x80, 0x12, 0x34, 0x56, 0x00, 0xAB, 0xCD, 0xEF}));
}

TEST(Headers, ExtensionBytes) {
  ExpectStores(Reth{0x0102030405060708, Key(0x090A0B0C), 0x0D0E0F10},
               Bytes({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}));
  ExpectStores(AtomicEth{1, Key(2), 3, 4}, Bytes({0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0,
                                                  0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4}));
  ExpectStores(Deth{0x80010000, Qpn(0xABCDEF)}, Bytes({0x80, 1, 0, 0, 0, 0xAB, 0xCD, 0xEF}));
  ExpectStores(XrcEth{0x1234567}, Bytes({0, 0x23, 0x45, 0x67}));
  ExpectStores(Feth{Feth::kPersistence, 1}, Bytes({0, 0, 0, 0x12}));
  ExpectStores(ImmDt{0x11223344}, Bytes({0x11, 0x22, 0x33, 0x44}));
  ExpectStores(Ieth{Key(0x55667788)}, Bytes({0x55, 0x66, 0x77, 0x88}));
  ExpectStores(AtomicAckEth{0x0102030405060708}, Bytes({1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(Aeth, Syndromes) {
  ExpectStores(Aeth::Ack(Msn(0x010203)), Bytes({0x1F, 1, 2, 3}));
  ExpectStores(Aeth::Ack(Msn(1), 5), Bytes({0x05, 0, 0, 1}));
  ExpectStores(Aeth::RnrNak(Msn(1), 14), Bytes({0x2E, 0, 0, 1}));
  ExpectStores(Aeth::Nak(Msn(1), NakCode::kPsnSequenceError), Bytes({0x60, 0, 0, 1}));
  ExpectStores(Aeth::Nak(Msn(1), NakCode::kRemoteOperationalError), Bytes({0x63, 0, 0, 1}));

  EXPECT_EQ(Aeth::Ack(Msn(1)).kind(), AethKind::kAck);
  EXPECT_EQ(Aeth::Ack(Msn(1)).value(), kNoCredits);
  EXPECT_EQ(Aeth::RnrNak(Msn(1), 31).kind(), AethKind::kRnrNak);
  EXPECT_EQ(Aeth::RnrNak(Msn(1), 31).value(), 31);
  EXPECT_EQ(Aeth::Nak(Msn(1), NakCode::kRemoteAccessError).kind(), AethKind::kNak);
  EXPECT_EQ(Aeth::Nak(Msn(1), NakCode::kRemoteAccessError).nak_code(), NakCode::kRemoteAccessError);
  EXPECT_EQ((Aeth{0x40, Msn(1)}).kind(), AethKind::kReserved);
  for (const int bits : {0x80, 0xA0, 0xC0, 0xE0}) {
    EXPECT_EQ((Aeth{static_cast<uint8_t>(bits), Msn(1)}).kind(), AethKind::kReserved) << bits;
  }
}

// IBTA vol 1, 9.7.5.1.3: the credit counts of the codes 0 to 30.
TEST(Aeth, Credits) {
  constexpr std::array<uint32_t, 31> kCounts = {
      0,   1,   2,   3,   4,    6,    8,    12,   16,   24,   32,   48,    64,    96,    128,  192,
      256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};
  for (size_t i = 0; i < kCounts.size(); ++i) {
    const auto code = static_cast<uint8_t>(i);
    EXPECT_EQ(CreditsOf(code), kCounts[code]);
    EXPECT_EQ(CreditCode(kCounts[code]), code);
    // Never more than there are.
    if (code != 0) {
      EXPECT_EQ(CreditCode(kCounts[code] - 1), code - 1);
    }
    if (code > 2 && code < 30) {
      EXPECT_EQ(CreditCode(kCounts[code] + 1), code + (code == 3 ? 1 : 0));
    }
  }
  EXPECT_EQ(CreditCode(49152), 30);
  EXPECT_EQ(CreditCode(UINT32_MAX), 30);
}

TEST(Aeth, RnrTimers) {
  EXPECT_EQ(kRnrTimerNs[0], 655'360'000u);  // the longest of all
  EXPECT_EQ(kRnrTimerNs[1], 10'000u);
  EXPECT_EQ(kRnrTimerNs[12], 640'000u);
  EXPECT_EQ(kRnrTimerNs[31], 491'520'000u);
  // From code 2 on, 2^k and 3 * 2^(k-1) alternate: each code is twice the code two before it.
  for (size_t code = 4; code < 32; ++code) {
    EXPECT_EQ(kRnrTimerNs[code], 2 * kRnrTimerNs[code - 2]) << code;
  }
  EXPECT_EQ(kRnrTimerNs[0], 2 * kRnrTimerNs[30]);
}

TEST(Ipv4, HeaderSumFindsEveryFlippedBit) {
  // From the example in RFC 1071's successor texts: a header whose checksum is known to be b861.
  std::vector<std::byte> ip = Bytes({0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11,
                                     0xB8, 0x61, 0xC0, 0xA8, 0x00, 0x01, 0xC0, 0xA8, 0x00, 0xC7});
  EXPECT_EQ(Ipv4HeaderSum(ip.data()), 0xFFFF);
  for (size_t bit = 0; bit < 160; ++bit) {
    ip[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_NE(Ipv4HeaderSum(ip.data()), 0xFFFF) << bit;
    ip[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  }
}

TEST(DropReasons, NamesAreDistinctCounterNames) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kDropReasonCount; ++i) {
    const std::string_view name = DropReasonName(static_cast<DropReason>(i));
    EXPECT_FALSE(name.empty());
    EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"), name.npos) << name;
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(DropReasonName(DropReason::kIcrc), "icrc");
}

TEST(Grh, Ipv4SitsInTheLastTwentyBytes) {
  std::vector<std::byte> network(64);
  for (size_t i = 0; i < network.size(); ++i) network[i] = static_cast<std::byte>(i + 1);
  Packet packet;
  packet.network_header = network.data();
  std::vector<std::byte> grh(kGrhBytes, std::byte{0xEE});
  StoreGrh(packet, grh.data());
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(grh[i], std::byte{0});
  EXPECT_TRUE(std::equal(grh.begin() + 20, grh.end(), network.begin()));
  packet.is_ipv6 = true;
  StoreGrh(packet, grh.data());
  EXPECT_TRUE(std::equal(grh.begin(), grh.end(), network.begin()));
}

}  // namespace
}  // namespace roci::roce
