// Decoded fields of frames, and their verdicts.
#include "tools/decode/dissect.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "roce/icrc.h"
#include "tests/source_paths.h"
#include "tests/unit/tools/decode/captures.h"
#include "tests/unit/tools/decode/decode_frames.h"
#include "tools/decode/describe.h"

namespace roci::tools {
namespace {

Bytes ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  return {p, p + text.size()};
}

TEST(DissectTest, RecordedFramesAreReencodedByteForByte) {
  size_t frames = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(VectorDir())) {
    if (entry.path().extension() != ".pcap") continue;
    const Result result = ReadAll(ReadFile(entry.path()));
    EXPECT_EQ(result.outcome, Outcome::kEnd);
    for (size_t i = 0; i < result.records.size(); ++i) {
      const auto frame =
          Dissect(result.bytes[i], result.records[i].original_length, result.records[i].link_type)
              .roce;
      if (!frame) continue;
      ++frames;
      EXPECT_FALSE(frame->failed()) << entry.path() << " " << i + 1;
      EXPECT_FALSE(frame->cut);
      EXPECT_EQ(frame->icrc, IcrcVerdict::kGood);
      EXPECT_EQ(frame->reencoded, ReencodeVerdict::kSame);
    }
  }
  EXPECT_GT(frames, 2500u);
}

TEST(DissectTest, EveryOpcodeOverBothFamilies) {
  for (const bool is_ipv6 : {false, true}) {
    for (const roce::OpcodeInfo& info : roce::kOpcodeTable) {
      if (!info.known) continue;
      const uint32_t length = info.payload == roce::PayloadRule::kEightBytes ? 8
                              : info.payload == roce::PayloadRule::kAny      ? 13
                                                                             : 0;
      roce::Path path = TestPath(is_ipv6);
      path.has_vlan = true;
      path.vlan_tci = 0x6005;
      const Bytes bytes = Encode(path, info.opcode, length);
      const auto frame = DissectWhole(bytes);
      ASSERT_TRUE(frame.has_value());
      EXPECT_FALSE(frame->failed()) << info.name;
      EXPECT_EQ(frame->reencoded, ReencodeVerdict::kSame) << info.name;
      EXPECT_EQ(frame->payload_bytes, length) << info.name;
      ASSERT_EQ(frame->vlans.size(), 1u);
      const auto words = Describe({.bytes = bytes}, *frame);
      EXPECT_EQ(words["bth"]["name"], info.name);
      EXPECT_EQ(words["vlan"][0]["vid"], 5);
      EXPECT_EQ(words["vlan"][0]["priority"], 3);
      EXPECT_EQ(words["verdict"], "ok");
      const std::string ip = is_ipv6 ? "ipv6" : "ipv4";
      EXPECT_EQ(words[ip]["dscp"], 0x6A >> 2);
      EXPECT_EQ(words[ip]["ecn"], 2);
      for (const auto& [header, name] : {std::pair{roce::ExtHeader::kReth, "reth"},
                                         {roce::ExtHeader::kAeth, "aeth"},
                                         {roce::ExtHeader::kDeth, "deth"},
                                         {roce::ExtHeader::kAtomicEth, "atomiceth"},
                                         {roce::ExtHeader::kAtomicAckEth, "atomicacketh"},
                                         {roce::ExtHeader::kImmDt, "immdt"},
                                         {roce::ExtHeader::kIeth, "ieth"},
                                         {roce::ExtHeader::kXrcEth, "xrceth"},
                                         {roce::ExtHeader::kFeth, "feth"},
                                         {roce::ExtHeader::kMissing, "missing"}}) {
        EXPECT_EQ(words.contains(name), info.Has(header)) << info.name << " " << name;
      }
      if (info.Has(roce::ExtHeader::kAeth)) {
        EXPECT_EQ(words["aeth"]["code"], "remote_access_error");
      }
    }
  }
}

TEST(DissectTest, OneWrongBitIsABadIcrc) {
  Bytes bytes = Encode(TestPath(true), roce::Opcode::kRcWriteOnly, 100);
  bytes[100] ^= std::byte{1};
  const auto frame = DissectWhole(bytes);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->icrc, IcrcVerdict::kBad);
  EXPECT_NE(frame->icrc_found, frame->icrc_computed);
  EXPECT_EQ(frame->icrc_found, roce::LoadBe<uint32_t>(&bytes[bytes.size() - 4]));
  roce::StoreBe<uint32_t>(&bytes[bytes.size() - 4], frame->icrc_computed);
  EXPECT_EQ(DissectWhole(bytes)->icrc, IcrcVerdict::kGood);
  EXPECT_EQ(frame->reencoded, ReencodeVerdict::kUnchecked);
  EXPECT_TRUE(frame->failed());
}

TEST(DissectTest, ReservedBitsAndPadMayHaveAnyValue) {
  Bytes padded = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 5);
  padded[54 + 5 + 1] = std::byte{0x77};
  FixIcrc(padded, false);
  Bytes notification = Encode(TestPath(true), roce::Opcode::kCnp, 0);
  notification[74 + 15] = std::byte{0x01};
  notification[74] = std::byte{0xF0};
  FixIcrc(notification, true);
  Bytes flush = Encode(TestPath(false), roce::Opcode::kRcFlush, 0);
  for (const size_t at : {54, 55, 56}) flush[at] = std::byte{0xFF};
  flush[57] |= std::byte{0xC0};
  FixIcrc(flush, false);
  for (const Bytes& bytes : {padded, notification, flush}) {
    const auto frame = DissectWhole(bytes);
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->reencoded, ReencodeVerdict::kSame) << frame->differs_at;
    EXPECT_FALSE(frame->failed());
  }
  EXPECT_EQ(Describe({.bytes = padded}, *DissectWhole(padded))["pad"], "007700");
  EXPECT_EQ(Describe({.bytes = flush}, *DissectWhole(flush))["feth"]["resv26"], 0x3FFFFFF);
  EXPECT_EQ(Describe({.bytes = notification}, *DissectWhole(notification))["cnp"]["resv128"],
            "f0000000000000000000000000000001");
  const Bytes plain = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 5);
  EXPECT_FALSE(Describe({.bytes = plain}, *DissectWhole(plain)).contains("pad"));
}

TEST(DissectTest, AWrongUdpChecksumIsNamedAndDoesNotFail) {
  for (const bool is_ipv6 : {false, true}) {
    Bytes bytes = Encode(TestPath(is_ipv6), roce::Opcode::kRcSendOnly, 5);
    const size_t at = is_ipv6 ? 60 : 40;
    EXPECT_FALSE(DissectWhole(bytes)->udp_checksum_computed.has_value());  // 0: there is none
    roce::StoreBe<uint16_t>(&bytes[at], 0x1234);
    auto frame = DissectWhole(bytes);
    ASSERT_TRUE(frame->udp_checksum_computed.has_value());
    const uint16_t right = *frame->udp_checksum_computed;
    EXPECT_FALSE(frame->failed());
    EXPECT_EQ(frame->reencoded, ReencodeVerdict::kSame);
    EXPECT_EQ(Describe({.bytes = bytes}, *frame)["udp"]["computed"], right);
    roce::StoreBe<uint16_t>(&bytes[at], right);
    frame = DissectWhole(bytes);
    EXPECT_FALSE(frame->udp_checksum_computed.has_value());
    EXPECT_EQ(frame->reencoded, ReencodeVerdict::kSame);
    // With it the words of the pseudo header and the datagram sum to all ones (RFC 768).
    uint64_t sum = 17 + (bytes.size() - (at - 6));
    for (size_t i = is_ipv6 ? 22 : 26; i < bytes.size(); i += 2) {
      sum += roce::LoadBe<uint16_t>(&bytes[i]);
    }
    EXPECT_EQ(roce::FoldOnesComplement(sum), 0xFFFF);
  }
}

TEST(DissectTest, FramesThatAreCutAreNamedAndDoNotFail) {
  const Bytes bytes = Encode(TestPath(false), roce::Opcode::kRcWriteOnly, 1000);
  const std::span<const std::byte> all(bytes);
  constexpr size_t kPortIsThere = 38;
  for (size_t kept = kPortIsThere; kept < bytes.size(); ++kept) {
    const auto frame = Dissect(all.first(kept), static_cast<uint32_t>(bytes.size()), 1).roce;
    ASSERT_TRUE(frame.has_value()) << kept;
    EXPECT_TRUE(frame->cut);
    EXPECT_EQ(frame->udp.has_value(), kept >= 42) << kept;
    EXPECT_FALSE(frame->failed());
    EXPECT_EQ(frame->icrc, IcrcVerdict::kUnchecked);
    EXPECT_EQ(frame->bth.has_value(), kept >= 54) << kept;
    if (kept >= 54) {
      EXPECT_EQ(frame->payload_bytes, 1000u);
    }
    const auto words = Describe({.bytes = all.first(kept)}, *frame);
    EXPECT_EQ(words["verdict"], "cut");
  }
  // In front of that nobody knows what it is.
  for (size_t kept = 0; kept < kPortIsThere; ++kept) {
    EXPECT_EQ(Dissect(all.first(kept), static_cast<uint32_t>(bytes.size()), 1).kind,
              FrameKind::kCut)
        << kept;
    EXPECT_EQ(KindOf(Bytes(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(kept))),
              FrameKind::kHeaders)
        << kept;
  }
  // The same bytes, when nothing says that there were more.
  const auto frame = DissectWhole(Bytes(bytes.begin(), bytes.begin() + 200));
  EXPECT_EQ(frame->malformed, roce::DropReason::kIpLength);
  EXPECT_FALSE(frame->cut);
}

TEST(DissectTest, MalformedFramesAreNamedAsTheDeviceCountsThem) {
  Bytes version = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 4);
  version[43] |= std::byte{3};
  EXPECT_EQ(DissectWhole(version)->malformed, roce::DropReason::kTransportVersion);
  Bytes opcode = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 4);
  opcode[42] = std::byte{0x5F};
  EXPECT_EQ(DissectWhole(opcode)->malformed, roce::DropReason::kReservedOpcode);
  Bytes checksum = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 4);
  checksum[24] ^= std::byte{1};
  EXPECT_EQ(DissectWhole(checksum)->malformed, roce::DropReason::kIpv4Checksum);
  EXPECT_TRUE(DissectWhole(checksum)->failed());
  // As segmentation offload leaves it; the transport headers are there all the same.
  Bytes no_length = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 4);
  no_length[16] = no_length[17] = std::byte{0};
  no_length[24] = no_length[25] = std::byte{0};
  const uint16_t sum = static_cast<uint16_t>(~roce::Ipv4HeaderSum(&no_length[14]));
  std::memcpy(&no_length[24], &sum, sizeof(sum));
  EXPECT_EQ(DissectWhole(no_length)->malformed, roce::DropReason::kIpLength);
  EXPECT_EQ(DissectWhole(no_length)->bth->psn, roce::Psn(0xABCDEF));
  EXPECT_EQ(DissectWhole(no_length)->trailer_bytes, 0u);
  Bytes header = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 4);
  header[14] = std::byte{0x44};
  EXPECT_EQ(DissectWhole(header)->malformed, roce::DropReason::kIpv4Header);
}

TEST(DissectTest, AUdpHeaderThatEndsBehindItsPortIsMalformed) {
  for (const bool is_ipv6 : {false, true}) {
    const Bytes whole = Encode(TestPath(is_ipv6), roce::Opcode::kRcSendOnly, 4);
    const ptrdiff_t udp_at = is_ipv6 ? 54 : 34;
    for (ptrdiff_t kept = 4; kept < 8; ++kept) {
      Bytes bytes(whole.begin(), whole.begin() + udp_at + kept);
      // Both where the IP header knows of it and where it does not.
      for (const bool says_so : {false, true}) {
        if (says_so) {
          const size_t at = is_ipv6 ? 18 : 16;
          roce::StoreBe<uint16_t>(&bytes[at], static_cast<uint16_t>(kept + (is_ipv6 ? 0 : 20)));
        }
        const auto frame = DissectWhole(bytes);
        ASSERT_TRUE(frame.has_value()) << kept;
        EXPECT_TRUE(frame->failed());
        EXPECT_FALSE(frame->cut);
        EXPECT_EQ(frame->malformed, roce::DropReason::kFrameTruncated);
        const auto words = Describe({.bytes = bytes}, *frame);
        EXPECT_FALSE(words.contains("udp"));
        EXPECT_EQ(words["verdict"], "failed");
      }
    }
  }
}

// RDETH, and in requests DETH, in front of what RC has (IBTA vol 1, 9.2.1).
TEST(DissectTest, ReliableDatagramsAreShownAndNotServed) {
  Bytes request = Encode(TestPath(false), roce::Opcode::kRcWriteOnly, 40);
  request[42] = std::byte{0x4A};
  const Bytes more = ToBytes({0xAB, 0x12, 0x34, 0x56, 0x80, 0, 0, 1, 0xCD, 0, 0, 9});
  request.insert(request.begin() + 54, more.begin(), more.end());
  roce::StoreBe<uint16_t>(&request[16], static_cast<uint16_t>(request.size() - 14));
  roce::StoreBe<uint16_t>(&request[38], static_cast<uint16_t>(request.size() - 34));
  FixIcrc(request, false);
  const auto frame = DissectWhole(request);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->icrc, IcrcVerdict::kGood);
  const auto words = Describe({.bytes = request}, *frame);
  EXPECT_EQ(words["bth"]["name"], "RD_WRITE_ONLY");
  EXPECT_EQ(words["rdeth"]["resv8"], 0xAB);
  EXPECT_EQ(words["rdeth"]["ee_context"], 0x123456);
  EXPECT_EQ(words["deth"]["qkey"], 0x80000001);
  EXPECT_EQ(words["deth"]["resv8"], 0xCD);
  EXPECT_EQ(words["deth"]["src_qpn"], 9);
  EXPECT_EQ(words["reth"]["rkey"], 0x99);
  EXPECT_EQ(words["payload"], 40);

  const HeaderLayout answer = LayoutOf(static_cast<roce::Opcode>(0x52));
  EXPECT_EQ(answer.name, "RD_ATOMIC_ACKNOWLEDGE");
  EXPECT_FALSE(answer.info.Has(roce::ExtHeader::kDeth));
  EXPECT_EQ(answer.info.OffsetOf(roce::ExtHeader::kAeth), 16u);
  EXPECT_EQ(answer.info.OffsetOf(roce::ExtHeader::kAtomicAckEth), 20u);
  EXPECT_EQ(answer.info.header_bytes, 28);
  const HeaderLayout resync = LayoutOf(static_cast<roce::Opcode>(0x55));
  EXPECT_EQ(resync.name, "RD_RESYNC");
  EXPECT_EQ(resync.info.header_bytes, 24);
  for (const int code : {0x56, 0x5C, 0x5F}) {
    EXPECT_FALSE(LayoutOf(static_cast<roce::Opcode>(code)).has_headers()) << code;
  }
}

Bytes FromHex(const std::string& hex) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Frames of RoCEv1 whose ICRC others have computed.
std::vector<Bytes> RoceV1Frames() {
  std::ifstream in(VectorDir() + "/known-answers.txt");
  std::vector<Bytes> frames;
  std::string title, detail, hex;
  while (std::getline(in, title) && std::getline(in, detail) && std::getline(in, hex)) {
    if (detail.starts_with("# roce1")) frames.push_back(FromHex(hex));
  }
  return frames;
}

TEST(DissectTest, RoceV1IsVerifiedAsWell) {
  const auto frames = RoceV1Frames();
  ASSERT_EQ(frames.size(), 2u);
  for (const Bytes& bytes : frames) {
    const auto frame = DissectWhole(Join({bytes, Bytes(4)}));
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->icrc, IcrcVerdict::kGood);
    EXPECT_EQ(frame->malformed, roce::DropReason::kNone);
    EXPECT_EQ(frame->reencoded, ReencodeVerdict::kSame) << frame->differs_at;
    EXPECT_EQ(frame->trailer_bytes, 4u);
    // What routers change is not covered, everything else is.
    for (size_t at = 14; at < bytes.size(); ++at) {
      Bytes changed = bytes;
      changed[at] ^= std::byte{1};
      const bool is_masked = at < 18 || at == 21 || at == 14 + 40 + 4;
      EXPECT_EQ(DissectWhole(changed)->failed(), !is_masked) << at;
    }
  }
  const auto words = Describe({.bytes = frames[0]}, *DissectWhole(frames[0]));
  EXPECT_EQ(words["grh"]["next_header"], 0x1B);
  EXPECT_EQ(words["grh"]["dst"], "15.0.0.2");
  EXPECT_EQ(words["bth"]["name"], "RC_WRITE_ONLY");
  EXPECT_EQ(words["payload"], 5);
  EXPECT_FALSE(words.contains("udp"));
}

TEST(DissectTest, RoceV1ThatIsMalformedOrCut) {
  const Bytes good = RoceV1Frames()[0];
  const auto malformed = [&good](size_t at, int value) {
    Bytes bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return DissectWhole(bytes)->malformed;
  };
  EXPECT_EQ(malformed(14, 0x40), roce::DropReason::kIpv6Header);
  EXPECT_EQ(malformed(19, 0x2C), roce::DropReason::kIpLength);
  EXPECT_EQ(malformed(18, 0xFF), roce::DropReason::kIpLength);
  EXPECT_EQ(malformed(19, 0x10), roce::DropReason::kHeadersTruncated);
  EXPECT_EQ(malformed(20, 17), roce::DropReason::kNotRoce);
  EXPECT_EQ(malformed(54, 0x5F), roce::DropReason::kReservedOpcode);
  const std::span<const std::byte> all(good);
  for (size_t kept = 14; kept < good.size(); ++kept) {
    const auto cut = Dissect(all.first(kept), static_cast<uint32_t>(good.size()), 1).roce;
    ASSERT_TRUE(cut.has_value()) << kept;
    EXPECT_TRUE(cut->cut && !cut->failed()) << kept;
    EXPECT_TRUE(Dissect(all.first(kept), static_cast<uint32_t>(kept), 1).roce->failed()) << kept;
  }
}

}  // namespace
}  // namespace roci::tools
