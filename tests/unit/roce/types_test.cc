#include "roce/types.h"

#include <gtest/gtest.h>

#include "tests/unit/roce/rng.h"

namespace roci::roce {
namespace {

constexpr uint32_t kWrap = 1u << 24;

template <class T>
concept HasLess = requires(T a, T b) {
  a < b;
};
static_assert(!HasLess<Psn> && !HasLess<Msn>);

TEST(Psn, DropsTheUpperByte) {
  EXPECT_EQ(Psn(0x12345678).value(), 0x345678u);
  EXPECT_EQ(Qpn(0xFF000001), kGsiQpn);
  EXPECT_EQ(Msn(0x01000000).value(), 0u);
}

TEST(Psn, Wraps) {
  EXPECT_EQ(Psn(0xFFFFFF) + 1, Psn(0));
  EXPECT_EQ(Psn(0) - 1, Psn(0xFFFFFF));
  Psn psn(0xFFFFFE);
  ++psn;
  EXPECT_EQ(psn, Psn(0xFFFFFF));
  ++psn;
  EXPECT_EQ(psn, Psn(0));
  Msn msn(0xFFFFFF);
  EXPECT_EQ((++msn).value(), 0u);
}

TEST(Psn, DistanceAtTheEdges) {
  EXPECT_EQ(Distance(Psn(5), Psn(5)), 0);
  EXPECT_EQ(Distance(Psn(0xFFFFFF), Psn(0)), 1);
  EXPECT_EQ(Distance(Psn(0), Psn(0xFFFFFF)), -1);
  EXPECT_EQ(Distance(Psn(0), Psn(0x7FFFFF)), 0x7FFFFF);
  EXPECT_EQ(Distance(Psn(0), Psn(0x800000)), -0x800000);
}

TEST(Psn, DistanceIsAdditionsInverse) {
  Rng random(1);
  for (int i = 0; i < 100000; ++i) {
    const Psn a(random());
    const auto n = static_cast<int32_t>(random() % kWrap) - (1 << 23);
    EXPECT_EQ(Distance(a, a + static_cast<uint32_t>(n)), n);
    const Psn b(random());
    EXPECT_EQ(a + static_cast<uint32_t>(Distance(a, b)), b);
    if (Distance(a, b) != -(1 << 23)) {
      EXPECT_EQ(Distance(a, b), -Distance(b, a));
    }
  }
}

TEST(Psn, InWindowAcrossTheWrap) {
  const Psn start(0xFFFFFE);
  EXPECT_FALSE(InWindow(Psn(0xFFFFFD), start, 4));
  for (uint32_t i = 0; i < 4; ++i) EXPECT_TRUE(InWindow(start + i, start, 4)) << i;
  EXPECT_FALSE(InWindow(Psn(2), start, 4));
  EXPECT_FALSE(InWindow(start, start, 0));
  EXPECT_TRUE(InWindow(start - 1, start, kWrap));
}

TEST(Gid, KnowsMappedIpv4) {
  const Gid v4 = Gid::FromIpv4({{192, 168, 0, 7}});
  EXPECT_TRUE(v4.IsIpv4());
  EXPECT_EQ(v4.ToIpv4(), (Ipv4{{192, 168, 0, 7}}));
  for (size_t i = 0; i < 12; ++i) {
    Gid other = v4;
    other.bytes[i] ^= 0x10;
    EXPECT_FALSE(other.IsIpv4()) << i;
    EXPECT_NE(other, v4);
  }
  EXPECT_FALSE(v4.IsZero());
  EXPECT_TRUE(Gid{}.IsZero());
  EXPECT_FALSE(Gid{}.IsIpv4());
}

TEST(Gid, KnowsMulticast) {
  EXPECT_TRUE(Gid::FromIpv4({{224, 0, 0, 1}}).IsMulticast());
  EXPECT_TRUE(Gid::FromIpv4({{239, 255, 255, 255}}).IsMulticast());
  EXPECT_FALSE(Gid::FromIpv4({{223, 255, 255, 255}}).IsMulticast());
  EXPECT_FALSE(Gid::FromIpv4({{240, 0, 0, 1}}).IsMulticast());
  EXPECT_TRUE((Gid{{0xFF, 0x0E, 1}}).IsMulticast());
  EXPECT_FALSE((Gid{{0xFE, 0x80, 1}}).IsMulticast());
}

TEST(PathMtu, CodesAndBytes) {
  constexpr std::array<uint32_t, 5> kSizes = {256, 512, 1024, 2048, 4096};
  for (uint32_t code = 1; code <= 5; ++code) {
    ASSERT_TRUE(PathMtuFromCode(code).has_value());
    EXPECT_EQ(PathMtuBytes(*PathMtuFromCode(code)), kSizes[code - 1]);
    EXPECT_EQ(PathMtuFromBytes(kSizes[code - 1]), PathMtuFromCode(code));
  }
  for (const uint32_t bad : {0u, 6u, 255u}) EXPECT_FALSE(PathMtuFromCode(bad).has_value()) << bad;
  for (const uint32_t bad : {0u, 128u, 255u, 257u, 1000u, 8192u}) {
    EXPECT_FALSE(PathMtuFromBytes(bad).has_value()) << bad;
  }
}

TEST(PathMtu, FitsTheEthernetMtu) {
  EXPECT_EQ(PathMtuForEthernetMtu(1500), PathMtu::k1024);
  EXPECT_EQ(PathMtuForEthernetMtu(9000), PathMtu::k4096);
  EXPECT_EQ(PathMtuForEthernetMtu(4096 + kMaxPacketOverhead), PathMtu::k4096);
  EXPECT_EQ(PathMtuForEthernetMtu(4096 + kMaxPacketOverhead - 1), PathMtu::k2048);
  EXPECT_EQ(PathMtuForEthernetMtu(256 + kMaxPacketOverhead), PathMtu::k256);
  EXPECT_FALSE(PathMtuForEthernetMtu(256 + kMaxPacketOverhead - 1).has_value());
}

}  // namespace
}  // namespace roci::roce
