// The checksums of raw packets against a plain implementation of RFC 1071.
#include "dataplane/port/raw_checksums.h"

#include <gtest/gtest.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <cstring>
#include <string>
#include <vector>

#include "dataplane/base/frame_pool.h"
#include "dataplane/port/port_offloads.h"
#include "tests/unit/dataplane/environment.h"

namespace roci::testing {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint64_t kAllOffloads =
    RTE_ETH_TX_OFFLOAD_IPV4_CKSUM | RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_CKSUM;

void Put16(Bytes& out, size_t value) {
  out.push_back(static_cast<uint8_t>(value >> 8));
  out.push_back(static_cast<uint8_t>(value));
}
size_t Get16(const Bytes& bytes, size_t at) { return size_t{bytes[at]} << 8 | bytes[at + 1]; }

uint64_t Add(const Bytes& bytes, size_t from, size_t to, uint64_t sum = 0) {
  for (size_t i = from; i < to; ++i) sum += uint64_t{bytes[i]} << ((i - from) % 2 == 0 ? 8 : 0);
  return sum;
}
// 0 if the summed bytes include a correct checksum.
uint16_t Fold(uint64_t sum) {
  while (sum >> 16 != 0) sum = (sum & 0xFFFF) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

struct Options {
  bool ipv6 = false;
  bool tcp = false;
  bool vlan = false;
  size_t ip_options = 0;  // bytes
  size_t payload = 21;
};

struct Layout {
  size_t ip, transport, sum;  // where they begin
  Bytes frame;
};

Layout Make(const Options& o) {
  Layout out{};
  Bytes& f = out.frame;
  f = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
  if (o.vlan) {
    Put16(f, 0x8100);
    Put16(f, 7);
  }
  Put16(f, o.ipv6 ? 0x86DD : 0x0800);
  out.ip = f.size();
  const size_t carried = (o.tcp ? 20 : 8) + o.payload;
  const uint8_t protocol = o.tcp ? 6 : 17;
  if (o.ipv6) {
    f.insert(f.end(), {0x60, 0, 0, 0});
    Put16(f, carried);
    f.insert(f.end(), {protocol, 64});
    for (uint8_t i = 0; i < 32; ++i) f.push_back(static_cast<uint8_t>(0xF0 + i));
  } else {
    f.insert(f.end(), {static_cast<uint8_t>(0x45 + o.ip_options / 4), 0});
    Put16(f, 20 + o.ip_options + carried);
    f.insert(f.end(), {0, 1, 0x40, 0, 64, protocol, 0xAB, 0xCD, 192, 0, 2, 1, 192, 0, 2, 2});
    f.insert(f.end(), o.ip_options, 1);
  }
  out.transport = f.size();
  Put16(f, 1234);
  Put16(f, 5678);
  if (o.tcp) {
    f.insert(f.end(), {0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 0, 9, 0x12, 0x34, 0, 0});
  } else {
    Put16(f, carried);
    Put16(f, 0x1234);
  }
  out.sum = out.transport + (o.tcp ? 16 : 6);
  for (size_t i = 0; i < o.payload; ++i) f.push_back(static_cast<uint8_t>(i * 37 + 1));
  return out;
}

uint16_t Ipv4Fault(const Layout& layout) {
  return Fold(Add(layout.frame, layout.ip, layout.ip + (layout.frame[layout.ip] & 0xF) * 4u));
}
uint64_t PseudoHeader(const Layout& layout, const Options& o) {
  const size_t addresses = layout.ip + (o.ipv6 ? 8 : 12);
  const size_t carried = (o.tcp ? 20 : 8) + o.payload;
  return Add(layout.frame, addresses, addresses + (o.ipv6 ? 32 : 8), carried + (o.tcp ? 6 : 17));
}
uint16_t TransportFault(const Layout& layout, const Options& o) {
  return Fold(Add(layout.frame, layout.transport, layout.transport + (o.tcp ? 20 : 8) + o.payload,
                  PseudoHeader(layout, o)));
}

class RawChecksums : public ::testing::Test {
 protected:
  void TearDown() override { rte_pktmbuf_free(frame_); }
  rte_mbuf& Put(const Bytes& bytes) {
    rte_pktmbuf_free(frame_);
    frame_ = rte_pktmbuf_alloc(TestDataplane().frames().mempool());
    std::memcpy(rte_pktmbuf_append(frame_, static_cast<uint16_t>(bytes.size())), bytes.data(),
                bytes.size());
    return *frame_;
  }
  Bytes Now() const {
    const auto* data = rte_pktmbuf_mtod(frame_, const uint8_t*);
    return {data, data + frame_->data_len};
  }
  static uint32_t Size(const Bytes& bytes) { return static_cast<uint32_t>(bytes.size()); }
  bool Fill(const Bytes& bytes, uint64_t offloads = 0) {
    return dataplane::FillChecksums(Put(bytes), Size(bytes), offloads);
  }

  rte_mbuf* frame_ = nullptr;
};

std::vector<Options> Kinds() {
  std::vector<Options> kinds;
  for (const bool ipv6 : {false, true}) {
    for (const bool tcp : {false, true}) {
      for (const bool vlan : {false, true}) {
        for (const size_t payload : {0u, 1u, 21u, 1460u, 4000u}) {
          for (const size_t ip_options : {0u, 40u}) {
            if (ipv6 && ip_options != 0) continue;
            kinds.push_back({ipv6, tcp, vlan, ip_options, payload});
          }
        }
      }
    }
  }
  return kinds;
}

TEST_F(RawChecksums, AreComputedCorrectly) {
  for (const Options& o : Kinds()) {
    SCOPED_TRACE(::testing::Message() << o.ipv6 << o.tcp << o.vlan << ' ' << o.payload);
    Layout layout = Make(o);
    EXPECT_FALSE(dataplane::ChecksumsAreRight(Put(layout.frame)));
    EXPECT_FALSE(Fill(layout.frame));
    layout.frame = Now();
    if (!o.ipv6) {
      EXPECT_EQ(Ipv4Fault(layout), 0);
    }
    EXPECT_EQ(TransportFault(layout, o), 0);
    EXPECT_NE(Get16(layout.frame, layout.sum), 0u);
    // As with mlx5, the flag is not set for IPv6.
    EXPECT_EQ(dataplane::ChecksumsAreRight(*frame_), !o.ipv6);
    layout.frame[layout.sum] ^= 1;
    EXPECT_FALSE(dataplane::ChecksumsAreRight(Put(layout.frame)));
    layout.frame[layout.sum] ^= 1;
    layout.frame[layout.ip + 8] ^= 1;  // TTL
    EXPECT_FALSE(dataplane::ChecksumsAreRight(Put(layout.frame)));
  }
}

TEST_F(RawChecksums, ASumOfZeroIsAllOnesForUdp) {
  const Options o{.payload = 2};
  Layout layout = Make(o);
  // The payload that makes the sum of everything else 0xFFFF.
  for (size_t value = 0; value <= 0xFFFF; ++value) {
    layout.frame[layout.sum] = layout.frame[layout.sum + 1] = 0;
    layout.frame[layout.sum + 2] = static_cast<uint8_t>(value >> 8);
    layout.frame[layout.sum + 3] = static_cast<uint8_t>(value);
    if (TransportFault(layout, o) == 0) break;
  }
  ASSERT_EQ(TransportFault(layout, o), 0);
  Fill(layout.frame);
  EXPECT_EQ(Get16(Now(), layout.sum), 0xFFFFu);
  EXPECT_TRUE(dataplane::ChecksumsAreRight(*frame_));
}

TEST_F(RawChecksums, AMissingUdpChecksumIsAccepted) {
  const Layout layout = Make({});
  Fill(layout.frame);
  Bytes none = Now();
  none[layout.sum] = none[layout.sum + 1] = 0;
  EXPECT_TRUE(dataplane::ChecksumsAreRight(Put(none)));
  const Layout tcp = Make({.tcp = true});
  Fill(tcp.frame);
  none = Now();
  none[tcp.sum] = none[tcp.sum + 1] = 0;
  EXPECT_FALSE(dataplane::ChecksumsAreRight(Put(none)));
}

struct Strange {
  const char* name;
  bool has_ipv4;  // a whole IPv4 header, whose checksum is filled in
  Options options;
  void (*change)(Layout&);
};

TEST_F(RawChecksums, MalformedPacketsAreNotChanged) {
  const Strange kStrange[] = {
      {"arp", false, {}, [](Layout& l) { l.frame[l.ip - 1] = 6; }},
      {"cut in the IPv4 header", false, {}, [](Layout& l) { l.frame.resize(l.ip + 19); }},
      {"header length below 5", false, {}, [](Layout& l) { l.frame[l.ip] = 0x44; }},
      {"options beyond the frame", false, {.payload = 0}, [](Layout& l) { l.frame[l.ip] = 0x4F; }},
      {"longer than the frame", false, {}, [](Layout& l) { ++l.frame[l.ip + 3]; }},
      {"shorter than its header", false, {}, [](Layout& l) { l.frame[l.ip + 3] = 19; }},
      {"UDP length", true, {}, [](Layout& l) { ++l.frame[l.transport + 5]; }},
      {"UDP header cut", true, {.payload = 0}, [](Layout& l) { l.frame[l.ip + 3] = 27; }},
      {"TCP header cut",
       true,
       {.tcp = true, .payload = 0},
       [](Layout& l) { l.frame[l.ip + 3] = 39; }},
      {"ICMP", true, {}, [](Layout& l) { l.frame[l.ip + 9] = 1; }},
      {"first fragment", true, {}, [](Layout& l) { l.frame[l.ip + 6] = 0x20; }},
      {"later fragment", true, {}, [](Layout& l) { l.frame[l.ip + 7] = 5; }},
      {"two tags",
       false,
       {.vlan = true},
       [](Layout& l) {
         l.frame.insert(l.frame.begin() + 12, {0x81, 0, 0, 9});
       }},
      {"IPv6, longer than the frame",
       false,
       {.ipv6 = true},
       [](Layout& l) { ++l.frame[l.ip + 5]; }},
      {"IPv6, another header between",
       false,
       {.ipv6 = true},
       [](Layout& l) {
         l.frame[l.ip + 6] = 60;
         l.frame[l.transport] = 17;
         l.frame[l.transport + 1] = 0;
       }},
  };
  for (const Strange& strange : kStrange) {
    SCOPED_TRACE(strange.name);
    Layout layout = Make(strange.options);
    strange.change(layout);
    const Bytes before = layout.frame;
    for (const uint64_t offloads : {uint64_t{0}, kAllOffloads}) {
      Fill(before, offloads);
      EXPECT_EQ(frame_->ol_flags & RTE_MBUF_F_TX_L4_MASK, 0u);
      EXPECT_FALSE(dataplane::ChecksumsAreRight(*frame_));
      dataplane::CompleteChecksums(*frame_);
      layout.frame = Now();
      if (strange.has_ipv4) {
        EXPECT_EQ(Ipv4Fault(layout), 0);
        layout.frame[layout.ip + 10] = before[layout.ip + 10];
        layout.frame[layout.ip + 11] = before[layout.ip + 11];
      }
      EXPECT_EQ(layout.frame, before);
    }
  }
}

// ---- Offloads

TEST_F(RawChecksums, TheOffloadIsRequestedFromThePort) {
  for (const Options& o : Kinds()) {
    SCOPED_TRACE(::testing::Message() << o.ipv6 << o.tcp << o.vlan << ' ' << o.payload);
    Layout layout = Make(o);
    Fill(layout.frame);
    const Bytes software = Now();
    EXPECT_TRUE(Fill(layout.frame, kAllOffloads));
    EXPECT_EQ(frame_->ol_flags,
              (o.ipv6 ? RTE_MBUF_F_TX_IPV6 : RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM) |
                  (o.tcp ? RTE_MBUF_F_TX_TCP_CKSUM : RTE_MBUF_F_TX_UDP_CKSUM));
    EXPECT_EQ(frame_->l2_len, layout.ip);
    EXPECT_EQ(frame_->l3_len, layout.transport - layout.ip);
    // The checksum field has the sum of the pseudo-header, to which the port adds.
    EXPECT_EQ(Get16(Now(), layout.sum), uint16_t(~Fold(PseudoHeader(layout, o))));
    dataplane::CompleteChecksums(*frame_);
    EXPECT_EQ(frame_->ol_flags, 0u);
    EXPECT_EQ(Now(), software);
  }
}

TEST_F(RawChecksums, APortWithSomeOffloadsComputesTheseOnly) {
  const Layout layout = Make({});
  EXPECT_TRUE(Fill(layout.frame, RTE_ETH_TX_OFFLOAD_UDP_CKSUM));
  EXPECT_EQ(frame_->ol_flags, RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_UDP_CKSUM);
  EXPECT_EQ(Ipv4Fault({layout.ip, 0, 0, Now()}), 0);
  EXPECT_FALSE(Fill(layout.frame, RTE_ETH_TX_OFFLOAD_TCP_CKSUM));
  EXPECT_EQ(frame_->ol_flags, 0u);
  EXPECT_TRUE(dataplane::ChecksumsAreRight(*frame_));
  EXPECT_TRUE(Fill(layout.frame, RTE_ETH_TX_OFFLOAD_IPV4_CKSUM));
  EXPECT_EQ(frame_->ol_flags, RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IP_CKSUM);
  EXPECT_EQ(TransportFault({layout.ip, layout.transport, layout.sum, Now()}, {}), 0);
}

// Ports sum up to the end of the frame; QEMU's e1000e changes the length of padded packets.
TEST_F(RawChecksums, PacketsWithTrailingBytesAreNotOffloaded) {
  const Layout layout = Make({});
  Bytes longer = layout.frame;
  longer.push_back(0xEE);
  for (const uint32_t bytes : {Size(layout.frame), Size(longer)}) {
    EXPECT_FALSE(dataplane::FillChecksums(Put(longer), bytes, kAllOffloads));
    EXPECT_EQ(frame_->ol_flags, 0u);
    EXPECT_TRUE(dataplane::ChecksumsAreRight(*frame_));
  }
}

TEST_F(RawChecksums, OnlyTheResultGoodOfThePortIsTrusted) {
  constexpr uint64_t kGood = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
  constexpr uint64_t kBad = RTE_MBUF_F_RX_IP_CKSUM_BAD | RTE_MBUF_F_RX_L4_CKSUM_BAD;
  const Layout layout = Make({});
  Put(layout.frame).ol_flags = kGood;
  EXPECT_TRUE(dataplane::ChecksumsAreRight(*frame_));
  dataplane::ForgetChecksums(*frame_);
  EXPECT_FALSE(dataplane::ChecksumsAreRight(*frame_));
  frame_->ol_flags = RTE_MBUF_F_RX_IP_CKSUM_GOOD;
  EXPECT_FALSE(dataplane::ChecksumsAreRight(*frame_));
  frame_->ol_flags = kGood | kBad;  // both flags: unknown
  EXPECT_FALSE(dataplane::ChecksumsAreRight(*frame_));
  Fill(layout.frame);
  frame_->ol_flags = kBad;
  EXPECT_TRUE(dataplane::ChecksumsAreRight(*frame_));
  Put(Make({.ipv6 = true}).frame).ol_flags = kGood;
  EXPECT_FALSE(dataplane::ChecksumsAreRight(*frame_));
}

TEST(PortOffloads, ReceiveOffloadsAreEnabledOnlyForAllChecksums) {
  rte_eth_dev_info info{};
  info.rx_offload_capa = RTE_ETH_RX_OFFLOAD_CHECKSUM | RTE_ETH_RX_OFFLOAD_SCATTER;
  info.tx_offload_capa = RTE_ETH_TX_OFFLOAD_UDP_CKSUM | RTE_ETH_TX_OFFLOAD_TCP_TSO;
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(NamesOf(dataplane::ChecksumOffloads(info, true)),
            (Names{"rx_ipv4_checksum", "rx_udp_checksum", "rx_tcp_checksum", "tx_udp_checksum"}));
  EXPECT_EQ(NamesOf(dataplane::ChecksumOffloads(info, false)), Names{"tx_udp_checksum"});
  info.rx_offload_capa &= ~RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
  EXPECT_EQ(NamesOf(dataplane::ChecksumOffloads(info, true)), Names{"tx_udp_checksum"});
  EXPECT_EQ(dataplane::NamesOf({.rx = RTE_ETH_RX_OFFLOAD_SCATTER, .tx = 0}), Names{"rx_scatter"});
}

}  // namespace
}  // namespace roci::testing
