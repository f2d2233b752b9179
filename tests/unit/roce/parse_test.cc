// Gate 1: recorded frames, every drop reason, and mutations.
#include "roce/parse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "roce/frame.h"
#include "roce/icrc.h"
#include "tests/unit/roce/frames.h"
#include "tests/unit/roce/rng.h"
#include "tests/unit/roce/vectors.h"

namespace roci::roce {
namespace {

DropReason Parse(const Frame& frame) {
  // A copy of exactly the frame's size, so that a sanitizer detects reads beyond the end.
  const Frame copy(frame);  // NOLINT(performance-unnecessary-copy-initialization)
  Packet packet;
  return ParsePacket(copy, packet);
}

std::string Name(DropReason reason) { return std::string(DropReasonName(reason)); }

TEST(ParseVectors, EveryRecordedRoceFrameIsAccepted) {
  std::map<Transport, int> seen;
  for (const NamedFrame& frame : AllCapturedFrames()) {
    const DropReason reason = Parse(frame.bytes);
    if (LooksLikeRoceV2OverIpv4(frame.bytes)) {
      Packet packet;
      ASSERT_EQ(Name(ParsePacket(frame.bytes, packet)), "none") << frame.name;
      ++seen[packet.info->transport];
    } else {
      EXPECT_EQ(Name(reason), "not_roce") << frame.name;
    }
  }
  EXPECT_GT(seen[Transport::kRc], 1000);
  EXPECT_GT(seen[Transport::kUc], 300);
  EXPECT_GT(seen[Transport::kUd], 50);
}

TEST(ParseVectors, KnownAnswers) {
  std::map<std::string, int> kinds;
  for (const KnownAnswer& answer : ReadKnownAnswers()) {
    EXPECT_EQ(Name(Parse(answer.bytes)), answer.kind == "roce1" ? "not_roce" : "none")
        << answer.title;
    ++kinds[answer.kind];
  }
  EXPECT_GE(kinds["v4"], 8);
  EXPECT_GE(kinds["v6"], 1);
}

// The fields of scapy's IPv6 frame and of a NIC's CNP, decoded from the hex by hand.
TEST(ParseVectors, FieldsOfKnownFrames) {
  int found = 0;
  for (const KnownAnswer& answer : ReadKnownAnswers()) {
    Packet p;
    if (answer.kind == "v6") {
      ++found;
      ASSERT_EQ(ParsePacket(answer.bytes, p), DropReason::kNone);
      EXPECT_TRUE(p.is_ipv6);
      EXPECT_EQ(p.opcode, Opcode::kUcSendOnly);
      EXPECT_EQ(p.traffic_class, 0xE2);
      EXPECT_EQ(p.ecn(), 2);
      EXPECT_EQ(p.dscp(), 0x38);
      EXPECT_EQ(p.flow_label, 0x1FACEu);
      EXPECT_EQ(p.hop_limit, 0xFF);
      EXPECT_EQ(p.src_gid, (Gid{{0x20, 0x22, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x23}}));
      EXPECT_EQ(p.dst_gid, (Gid{{0x20, 0x23, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0x24}}));
      EXPECT_EQ(p.udp_src_port, 0xC000);
      EXPECT_EQ(p.dest_qpn, Qpn(0xD3));
      EXPECT_EQ(p.pad_count, 2);
      EXPECT_EQ(p.payload.size(), 18u);
      EXPECT_TRUE(p.mig_req);
    } else if (answer.title.find("CNP") != std::string::npos) {
      ++found;
      ASSERT_EQ(ParsePacket(answer.bytes, p), DropReason::kNone);
      EXPECT_EQ(p.opcode, Opcode::kCnp);
      EXPECT_TRUE(p.becn);
      EXPECT_FALSE(p.fecn);
      EXPECT_EQ(p.dest_qpn, Qpn(0x118));
      EXPECT_EQ(p.dst_gid, Gid::FromIpv4({{10, 0, 0x12, 1}}));
      EXPECT_TRUE(p.payload.empty());
    }
  }
  EXPECT_EQ(found, 2);
}

// ---- Every drop reason ----

struct Case {
  DropReason expected;
  const char* what;
  std::function<void(Frame&)> change;  // to a valid frame; checksums are recomputed afterwards
};

constexpr size_t kIp = 14;
constexpr size_t kUdp4 = kIp + 20;
constexpr size_t kBth4 = kUdp4 + 8;

void Put16(Frame& f, size_t at, unsigned v) {
  StoreBe<uint16_t>(f.data() + at, static_cast<uint16_t>(v));
}
unsigned Get16(const Frame& f, size_t at) { return LoadBe<uint16_t>(f.data() + at); }

// Inserts (or, if negative, removes) `delta` bytes before the ICRC and adjusts the length fields.
void Resize4(Frame& f, int delta) {
  if (delta > 0) f.insert(f.end() - 4, static_cast<size_t>(delta), std::byte{0});
  if (delta < 0) f.erase(f.end() - 4 + delta, f.end() - 4);
  Put16(f, kIp + 2, Get16(f, kIp + 2) + static_cast<unsigned>(delta));
  Put16(f, kUdp4 + 4, Get16(f, kUdp4 + 4) + static_cast<unsigned>(delta));
}

TEST(Parse, EveryReasonOverIpv4) {
  const Case kCases[] = {
      {DropReason::kNone, "nothing", [](Frame&) {}},
      {DropReason::kNone, "Ethernet padding", [](Frame& f) { f.resize(f.size() + 7); }},
      {DropReason::kNone, "FECN and BECN", [](Frame& f) { f[kBth4 + 4] = std::byte{0xC0}; }},
      {DropReason::kNone, "UDP checksum", [](Frame& f) { Put16(f, kUdp4 + 6, 0x1234); }},
      {DropReason::kNotRoce, "ARP", [](Frame& f) { Put16(f, 12, 0x0806); }},
      {DropReason::kNotRoce, "RoCE v1", [](Frame& f) { Put16(f, 12, 0x8915); }},
      {DropReason::kNotRoce, "TCP", [](Frame& f) { f[kIp + 9] = std::byte{6}; }},
      {DropReason::kNotRoce, "another port", [](Frame& f) { Put16(f, kUdp4 + 2, 4790); }},
      {DropReason::kNotRoce, "options on ICMP",
       [](Frame& f) { f[kIp] = std::byte{0x46}, f[kIp + 9] = std::byte{1}; }},
      {DropReason::kNotRoce, "options on another port",
       [](Frame& f) { f[kIp] = std::byte{0x46}, Put16(f, kUdp4 + 4 + 2, 53); }},
      {DropReason::kFrameTruncated, "half an Ethernet header", [](Frame& f) { f.resize(13); }},
      {DropReason::kFrameTruncated, "half an IP header", [](Frame& f) { f.resize(kIp + 19); }},
      {DropReason::kFrameTruncated, "half a UDP header", [](Frame& f) { f.resize(kUdp4 + 7); }},
      {DropReason::kVlanStack, "two tags",
       [](Frame& f) {
         const std::byte tags[] = {std::byte{0x81}, {}, {}, std::byte{5},
                                   std::byte{0x81}, {}, {}, std::byte{6}};
         f.insert(f.begin() + 12, std::begin(tags), std::end(tags));
       }},
      {DropReason::kVlanStack, "a provider's tag", [](Frame& f) { Put16(f, 12, 0x88A8); }},
      {DropReason::kVlanStack, "an old stack", [](Frame& f) { Put16(f, 12, 0x9100); }},
      {DropReason::kNotRoce, "ARP behind a tag",
       [](Frame& f) { Put16(f, 12, 0x8100), Put16(f, 16, 0x0806); }},
      {DropReason::kFrameTruncated, "half a tag",
       [](Frame& f) { Put16(f, 12, 0x8100), f.resize(17); }},
      {DropReason::kFrameTruncated, "half of the options",
       [](Frame& f) { f[kIp] = std::byte{0x4F}, f.resize(kIp + 60); }},
      {DropReason::kIpv4Header, "version 5", [](Frame& f) { f[kIp] = std::byte{0x55}; }},
      {DropReason::kIpv4Header, "IHL 4", [](Frame& f) { f[kIp] = std::byte{0x44}; }},
      {DropReason::kIpv4Options, "options",
       [](Frame& f) { f[kIp] = std::byte{0x46}, Put16(f, kUdp4 + 4 + 2, 4791); }},
      {DropReason::kIpv4Fragment, "first fragment", [](Frame& f) { Put16(f, kIp + 6, 0x2000); }},
      {DropReason::kIpv4Fragment, "last fragment", [](Frame& f) { Put16(f, kIp + 6, 0x0001); }},
      {DropReason::kIpLength, "more than the frame",
       [](Frame& f) { Put16(f, kIp + 2, Get16(f, kIp + 2) + 1); }},
      {DropReason::kIpLength, "less than UDP", [](Frame& f) { Put16(f, kIp + 2, 27); }},
      {DropReason::kUdpLength, "more than IP",
       [](Frame& f) { Put16(f, kUdp4 + 4, Get16(f, kUdp4 + 4) + 4); }},
      {DropReason::kUdpLength, "less than IP",
       [](Frame& f) { Put16(f, kUdp4 + 4, Get16(f, kUdp4 + 4) - 4); }},
      {DropReason::kTransportVersion, "TVer 1", [](Frame& f) { f[kBth4 + 1] |= std::byte{1}; }},
      {DropReason::kReservedOpcode, "0x15", [](Frame& f) { f[kBth4] = std::byte{0x15}; }},
      {DropReason::kReservedOpcode, "UC READ", [](Frame& f) { f[kBth4] = std::byte{0x2C}; }},
      {DropReason::kHeadersTruncated, "no BTH",
       [](Frame& f) { Resize4(f, static_cast<int>(kBth4 + 8) - static_cast<int>(f.size()) + 3); }},
      {DropReason::kHeadersTruncated, "no RETH",
       [](Frame& f) { Resize4(f, static_cast<int>(kBth4 + 28) - static_cast<int>(f.size())); }},
      {DropReason::kLengthNotMultipleOf4, "a byte more", [](Frame& f) { Resize4(f, 1); }},
      {DropReason::kPadCount, "pad without payload",
       [](Frame& f) {
         Resize4(f, -64);
         f[kBth4 + 1] |= std::byte{0x10};
       }},
      {DropReason::kPayloadLength, "READ request with payload",
       [](Frame& f) { f[kBth4] = std::byte{0x0C}; }},
      {DropReason::kPayloadLength, "ATOMIC WRITE of 64 bytes",
       [](Frame& f) { f[kBth4] = std::byte{0x1D}; }},
      {DropReason::kPayloadLength, "more than 4096", [](Frame& f) { Resize4(f, 4096 - 60); }},
  };
  TxPacket tx = RandomTxPacket(Opcode::kRcWriteOnly, 64, 5);
  const Frame valid = MakeFrame(TestPath(false, false), tx, 9);
  std::set<DropReason> seen;
  for (const Case& c : kCases) {
    Frame frame = valid;
    c.change(frame);
    FixChecksums(frame);
    EXPECT_EQ(Name(Parse(frame)), Name(c.expected)) << c.what;
    seen.insert(c.expected);
  }
  Frame checksum = valid;
  checksum[kIp + 1] ^= std::byte{4};
  EXPECT_EQ(Name(Parse(checksum)), "ipv4_checksum");
  Frame icrc = valid;
  icrc.back() ^= std::byte{1};
  EXPECT_EQ(Name(Parse(icrc)), "icrc");
  // Exactly 4096 bytes are accepted.
  Frame longest = valid;
  Resize4(longest, 4096 - 64);
  FixChecksums(longest);
  EXPECT_EQ(Name(Parse(longest)), "none");
  EXPECT_EQ(seen.size(), 15u);
}

void PutMappedAddress(Frame& f, size_t at) {
  const Gid gid = Gid::FromIpv4({{10, 1, 2, 3}});
  std::memcpy(f.data() + at, gid.bytes.data(), gid.bytes.size());
}

TEST(Parse, EveryReasonOverIpv6) {
  constexpr size_t kUdp6 = kIp + 40;
  const Case kCases[] = {
      {DropReason::kNone, "nothing", [](Frame&) {}},
      {DropReason::kNone, "hop limit", [](Frame& f) { f[kIp + 7] = std::byte{3}; }},
      {DropReason::kIpv6Header, "version 5", [](Frame& f) { f[kIp] = std::byte{0x50}; }},
      {DropReason::kIpv6Fragment, "a fragment of UDP",
       [](Frame& f) { f[kIp + 6] = std::byte{44}, f[kIp + 40] = std::byte{17}; }},
      {DropReason::kNotRoce, "a fragment of ICMPv6",
       [](Frame& f) { f[kIp + 6] = std::byte{44}, f[kIp + 40] = std::byte{58}; }},
      {DropReason::kFrameTruncated, "a fragment without header",
       [](Frame& f) { f[kIp + 6] = std::byte{44}, f.resize(kIp + 40); }},
      {DropReason::kNotRoce, "another port", [](Frame& f) { Put16(f, kUdp6 + 2, 53); }},
      {DropReason::kFrameTruncated, "half an IP header", [](Frame& f) { f.resize(kIp + 39); }},
      {DropReason::kFrameTruncated, "half a UDP header", [](Frame& f) { f.resize(kUdp6 + 7); }},
      {DropReason::kIpLength, "more than the frame",
       [](Frame& f) { Put16(f, kIp + 4, Get16(f, kIp + 4) + 1); }},
      {DropReason::kIpLength, "jumbogram", [](Frame& f) { Put16(f, kIp + 4, 0); }},
      {DropReason::kIpLength, "more than the packet's 16 bits",
       [](Frame& f) { f.resize(70000), Put16(f, kIp + 4, 0xFFFF); }},
      {DropReason::kIpv6MappedAddress, "source", [](Frame& f) { PutMappedAddress(f, kIp + 8); }},
      {DropReason::kIpv6MappedAddress, "target", [](Frame& f) { PutMappedAddress(f, kIp + 24); }},
      {DropReason::kUdpLength, "not IP's", [](Frame& f) { Put16(f, kUdp6 + 4, 8); }},
  };
  const Frame valid =
      MakeFrame(TestPath(true, false), RandomTxPacket(Opcode::kRcWriteOnly, 64, 5), 9);
  for (const Case& c : kCases) {
    Frame frame = valid;
    c.change(frame);
    EXPECT_EQ(Name(Parse(frame)), Name(c.expected)) << c.what;
  }
}

// Inserts extension headers behind the IPv6 header.
Frame WithExtensions(Frame f, unsigned first, std::initializer_list<unsigned> headers) {
  f[kIp + 6] = static_cast<std::byte>(first);
  Put16(f, kIp + 4, Get16(f, kIp + 4) + static_cast<unsigned>(headers.size()));
  std::vector<std::byte> bytes;
  for (const unsigned byte : headers) bytes.push_back(static_cast<std::byte>(byte));
  f.insert(f.begin() + kIp + 40, bytes.begin(), bytes.end());
  return f;
}

TEST(Parse, ExtensionHeadersBeforeUdp) {
  const Frame roce =
      MakeFrame(TestPath(true, false), RandomTxPacket(Opcode::kRcWriteOnly, 64, 5), 9);
  Frame dns = roce;
  Put16(dns, kIp + 42, 53);
  const auto parsed = [](const Frame& frame) { return Name(Parse(frame)); };
  // Hop-by-hop options, routing, authentication (of 12 bytes), destination options
  for (const unsigned kind : {0u, 43u, 60u, 135u, 139u, 140u}) {
    EXPECT_EQ(parsed(WithExtensions(roce, kind, {17, 0, 1, 4, 0, 0, 0, 0})), "ipv6_extension");
    EXPECT_EQ(parsed(WithExtensions(dns, kind, {17, 0, 1, 4, 0, 0, 0, 0})), "not_roce");
    EXPECT_EQ(parsed(WithExtensions(roce, kind, {6, 0, 1, 4, 0, 0, 0, 0})), "not_roce");
    // Followed by ICMPv6 (as in MLD); by ESP, which hides the rest; by nothing.
    EXPECT_EQ(parsed(WithExtensions(roce, kind, {58, 0, 5, 2, 0, 0, 1, 0})), "not_roce");
    EXPECT_EQ(parsed(WithExtensions(roce, kind, {50, 0, 1, 4, 0, 0, 0, 0})), "not_roce");
    EXPECT_EQ(parsed(WithExtensions(roce, kind, {59, 0, 1, 4, 0, 0, 0, 0})), "not_roce");
    EXPECT_EQ(parsed(WithExtensions(roce, kind, {17, 255, 1, 4, 0, 0, 0, 0})), "frame_truncated");
  }
  EXPECT_EQ(parsed(WithExtensions(roce, 51, {17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1})),
            "ipv6_extension");
  EXPECT_EQ(parsed(WithExtensions(roce, 0,
                                  {60, 0, 1, 4, 0, 0, 0, 0,  //
                                   17, 0, 1, 4, 0, 0, 0, 0})),
            "ipv6_extension");
  // A fragment header anywhere in the chain
  EXPECT_EQ(parsed(WithExtensions(roce, 44, {17, 0, 0, 1, 0, 0, 0, 7})), "ipv6_fragment");
  EXPECT_EQ(parsed(WithExtensions(roce, 0,
                                  {44, 0, 1, 4, 0, 0, 0, 0,  //
                                   17, 0, 0, 1, 0, 0, 0, 7})),
            "ipv6_fragment");
  EXPECT_EQ(parsed(WithExtensions(roce, 0,
                                  {44, 0, 1, 4, 0, 0, 0, 0,  //
                                   17, 0, 0, 8, 0, 0, 0, 7})),
            "ipv6_fragment");
  EXPECT_EQ(parsed(WithExtensions(roce, 44,
                                  {60, 0, 0, 1, 0, 0, 0, 7,  //
                                   17, 0, 1, 4, 0, 0, 0, 0})),
            "ipv6_fragment");
  // A later fragment does not contain the header that its "next header" field names.
  EXPECT_EQ(parsed(WithExtensions(roce, 44, {60, 0, 0, 8, 0, 0, 0, 7})), "not_roce");
  EXPECT_EQ(parsed(WithExtensions(roce, 44, {58, 0, 0, 1, 0, 0, 0, 7})), "not_roce");
}

TEST(Parse, ChainsOfExtensionHeadersEnd) {
  const Frame plain =
      MakeFrame(TestPath(true, false), RandomTxPacket(Opcode::kRcWriteOnly, 64, 5), 9);
  Frame chain = plain;
  for (int i = 0; i < 40; ++i) {
    chain = WithExtensions(chain, 60, {i == 0 ? 17u : 60u, 0, 1, 4, 0, 0, 0, 0});
    EXPECT_EQ(Name(Parse(chain)), "ipv6_extension") << i;
  }
  // A chain that is cut anywhere is a truncated frame.
  const Frame two = WithExtensions(plain, 0,
                                   {60, 0, 1, 4, 0, 0, 0, 0,  //
                                    17, 0, 1, 4, 0, 0, 0, 0});
  for (size_t length = kIp; length < kIp + 40 + 16 + 8; ++length) {
    EXPECT_EQ(Name(Parse(Frame(two.begin(), two.begin() + static_cast<ptrdiff_t>(length)))),
              "frame_truncated")
        << length;
  }
}

TEST(Parse, EveryTruncationIsRejected) {
  for (const bool ipv6 : {false, true}) {
    for (const bool vlan : {false, true}) {
      Frame frame = MakeFrame(TestPath(ipv6, vlan), RandomTxPacket(Opcode::kRcSendOnly, 33, 3), 1);
      ASSERT_EQ(Name(Parse(frame)), "none");
      while (!frame.empty()) {
        frame.pop_back();
        const DropReason reason = Parse(frame);
        EXPECT_TRUE(reason == DropReason::kFrameTruncated || reason == DropReason::kIpLength)
            << frame.size() << " " << Name(reason);
      }
    }
  }
}

// ---- Mutations ----

// The bits that no check covers: they may change on the way, or the transport does not use them. A
// change of any other bit must be detected.
Frame UncheckedBits(bool ipv6, bool vlan, size_t frame_bytes) {
  Frame mask(frame_bytes);
  const auto set = [&mask](size_t at, unsigned bits = 0xFF) {
    mask[at] = static_cast<std::byte>(bits);
  };
  for (size_t i = 0; i < 12; ++i) set(i);  // MAC addresses
  size_t ip = 14;
  if (vlan) {
    set(14);  // priority, VLAN id
    set(15);
    ip = 18;
  }
  if (ipv6) {  // the header checksum covers IPv4's mutable fields
    set(ip, 0x0F);
    for (const size_t i : {1, 2, 3, 7}) set(ip + i);  // traffic class, flow label, hop limit
  }
  const size_t udp = ip + (ipv6 ? 40 : 20);
  set(udp + 6);
  set(udp + 7);      // UDP checksum
  set(udp + 8 + 4);  // FECN, BECN and the reserved bits beside them
  return mask;
}

TEST(ParseMutations, EveryFlippedBitIsCaughtOrUnchecked) {
  for (const bool ipv6 : {false, true}) {
    for (const bool vlan : {false, true}) {
      for (const Opcode opcode : {Opcode::kRcWriteOnlyImm, Opcode::kRcAcknowledge, Opcode::kCnp,
                                  Opcode::kUdSendOnly, Opcode::kXrcCompareSwap}) {
        const bool data = InfoOf(opcode).payload == PayloadRule::kAny;
        Frame frame =
            MakeFrame(TestPath(ipv6, vlan), RandomTxPacket(opcode, data ? 21 : 0, 11), 77);
        const Frame unchecked = UncheckedBits(ipv6, vlan, frame.size());
        ASSERT_EQ(Name(Parse(frame)), "none");
        for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
          const auto flip = static_cast<std::byte>(1 << (bit % 8));
          frame[bit / 8] ^= flip;
          const bool accepted = Parse(frame) == DropReason::kNone;
          ASSERT_EQ(accepted, (unchecked[bit / 8] & flip) != std::byte{0})
              << InfoOf(opcode).name << (ipv6 ? " IPv6" : " IPv4") << (vlan ? " tagged" : "")
              << " byte " << bit / 8 << " bit " << bit % 8;
          frame[bit / 8] ^= flip;
        }
      }
    }
  }
}

TEST(ParseMutations, RecordedFramesWithARandomByteChanged) {
  constexpr unsigned kSeed = 4711;
  std::cout << "seed " << kSeed << "\n";
  Rng random(kSeed);
  for (const NamedFrame& named : AllCapturedFrames()) {
    if (!LooksLikeRoceV2OverIpv4(named.bytes)) continue;
    const Frame unchecked = UncheckedBits(false, false, named.bytes.size());
    for (int i = 0; i < 4; ++i) {
      Frame frame = named.bytes;
      const size_t at = i % 2 == 0 ? random() % frame.size() : random() % 70 % frame.size();
      const auto change = static_cast<std::byte>(1 + random() % 255);
      frame[at] ^= change;
      const bool harmless = (change & ~unchecked[at]) == std::byte{0};
      ASSERT_EQ(Parse(frame) == DropReason::kNone, harmless) << named.name << " byte " << at;
    }
  }
}

TEST(ParseMutations, GarbageIsNeverAccepted) {
  Rng random(99);
  for (int i = 0; i < 20000; ++i) {
    Frame frame(random() % 200);
    for (std::byte& b : frame) b = static_cast<std::byte>(random());
    if (frame.size() > 14) Put16(frame, 12, i % 2 == 0 ? 0x0800 : 0x86DD);
    EXPECT_NE(Parse(frame), DropReason::kNone);
  }
}

TEST(Parse, TwoStepsAgreeWithOne) {
  for (const NamedFrame& frame : AllCapturedFrames()) {
    Packet one, two;
    const DropReason reason = ParsePacket(frame.bytes, one);
    DropReason steps = ParseHeaders(frame.bytes, two);
    if (steps == DropReason::kNone) steps = CheckIcrc(two);
    ASSERT_EQ(reason, steps) << frame.name;
  }
  Frame bad = MakeFrame(TestPath(false, false), RandomTxPacket(Opcode::kRcSendOnly, 8, 1), 0);
  bad[bad.size() - 5] ^= std::byte{1};
  Packet packet;
  EXPECT_EQ(ParseHeaders(bad, packet), DropReason::kNone);
  EXPECT_EQ(CheckIcrc(packet), DropReason::kIcrc);
}

}  // namespace
}  // namespace roci::roce
