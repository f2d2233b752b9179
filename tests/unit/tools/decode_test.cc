// roci decode: capture files of all kinds, whole and damaged, and the verdicts on frames.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "roce/frame.h"
#include "tools/decode/capture_file.h"
#include "tools/decode/describe.h"
#include "tools/decode/dissect.h"

namespace roci::tools {
namespace {

using Bytes = std::vector<std::byte>;
using Outcome = CaptureReader::Outcome;

// Builds a capture in either byte order.
class Writer {
 public:
  explicit Writer(bool swapped) : swapped_(swapped) {}

  template <class T>
  Writer& Put(T value) {
    std::byte raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    if (swapped_) std::reverse(raw, raw + sizeof(T));
    bytes_.insert(bytes_.end(), raw, raw + sizeof(T));
    return *this;
  }
  Writer& Put(const Bytes& bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Writer& Pad() {
    bytes_.resize((bytes_.size() + 3) & ~size_t{3});
    return *this;
  }
  // A block of pcapng around what `body` holds.
  Writer& Block(uint32_t type, const Writer& body) {
    const auto length = static_cast<uint32_t>(body.bytes_.size() + 12);
    return Put(type).Put(length).Put(body.bytes_).Put(length);
  }
  const Bytes& bytes() const { return bytes_; }

 private:
  bool swapped_;
  Bytes bytes_;
};

struct Result {
  std::vector<CaptureRecord> records;  // without their bytes
  std::vector<Bytes> bytes;
  Outcome outcome{};
  std::string error;
};

Result ReadAll(const Bytes& file) {
  size_t at = 0;
  CaptureReader reader([&](std::byte* p, size_t n) {
    const size_t count = std::min(n, file.size() - at);
    if (count != 0) std::memcpy(p, file.data() + at, count);
    at += count;
    return count;
  });
  Result result;
  CaptureRecord record;
  while ((result.outcome = reader.Next(record)) == Outcome::kRecord) {
    result.bytes.emplace_back(record.bytes.begin(), record.bytes.end());
    result.records.push_back(record);
  }
  EXPECT_EQ(reader.Next(record), result.outcome);
  result.error = reader.error();
  EXPECT_EQ(result.error.empty(), result.outcome == Outcome::kEnd);
  return result;
}

const Bytes kThree = {std::byte{1}, std::byte{2}, std::byte{3}};

Writer Pcap(bool swapped, uint32_t magic, uint32_t link_type) {
  Writer file(swapped);
  file.Put(magic).Put(uint16_t{2}).Put(uint16_t{4}).Put(0).Put(0).Put(65535).Put(link_type);
  return file;
}

Writer SectionHeader(bool swapped) {
  Writer body(swapped);
  body.Put(0x1A2B3C4Du).Put(uint16_t{1}).Put(uint16_t{0}).Put(~uint64_t{0});
  return Writer(swapped).Block(0x0A0D0D0A, body);
}

// `resolution` 0: the option is left out.
Writer Interface(bool swapped, uint16_t link_type, uint8_t resolution, int64_t offset_s = 0) {
  Writer body(swapped);
  body.Put(link_type).Put(uint16_t{0}).Put(uint32_t{0});
  if (resolution != 0) body.Put(uint16_t{9}).Put(uint16_t{1}).Put(resolution).Pad();
  if (offset_s != 0) body.Put(uint16_t{14}).Put(uint16_t{8}).Put(offset_s);
  body.Put(uint16_t{0}).Put(uint16_t{0});
  return Writer(swapped).Block(1, body);
}

Writer Packet(bool swapped, uint32_t interface, uint64_t time, uint32_t original,
              const Bytes& bytes, uint32_t flags = 0) {
  Writer body(swapped);
  body.Put(interface).Put(static_cast<uint32_t>(time >> 32)).Put(static_cast<uint32_t>(time));
  body.Put(static_cast<uint32_t>(bytes.size())).Put(original).Put(bytes).Pad();
  if (flags != 0) body.Put(uint16_t{2}).Put(uint16_t{4}).Put(flags).Put(uint32_t{0});
  return Writer(swapped).Block(6, body);
}

class ByteOrderTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(ByteOrder, ByteOrderTest, ::testing::Bool());

TEST_P(ByteOrderTest, PcapWithMicroseconds) {
  Writer file = Pcap(GetParam(), 0xA1B2C3D4, kLinkTypeEthernet);
  file.Put(7).Put(123456).Put(3).Put(100).Put(kThree);
  const Result result = ReadAll(file.bytes());
  EXPECT_EQ(result.outcome, Outcome::kEnd);
  ASSERT_EQ(result.records.size(), 1u);
  EXPECT_EQ(result.bytes[0], kThree);
  EXPECT_EQ(result.records[0].number, 1u);
  EXPECT_EQ(result.records[0].seconds, 7);
  EXPECT_EQ(result.records[0].nanoseconds, 123456000u);
  EXPECT_EQ(result.records[0].original_length, 100u);
  EXPECT_EQ(result.records[0].link_type, kLinkTypeEthernet);
}

TEST_P(ByteOrderTest, PcapWithNanoseconds) {
  Writer file = Pcap(GetParam(), 0xA1B23C4D, kLinkTypeRaw);
  file.Put(7).Put(123456789).Put(3).Put(3).Put(kThree).Put(8).Put(1).Put(0).Put(0);
  const Result result = ReadAll(file.bytes());
  ASSERT_EQ(result.records.size(), 2u);
  EXPECT_EQ(result.records[0].nanoseconds, 123456789u);
  EXPECT_EQ(result.records[1].number, 2u);
  EXPECT_EQ(result.records[1].link_type, kLinkTypeRaw);
  EXPECT_TRUE(result.bytes[1].empty());
}

TEST_P(ByteOrderTest, PcapngWithSeveralInterfaces) {
  const bool swapped = GetParam();
  Writer file = SectionHeader(swapped);
  file.Put(Interface(swapped, 1, 9).bytes()).Put(Interface(swapped, 113, 0).bytes());
  file.Put(Interface(swapped, 1, 0x80 | 10, 1000).bytes());
  file.Put(Packet(swapped, 0, 5'000'000'001, 3, kThree, 1).bytes());
  file.Put(Writer(swapped).Block(0xBAD, Writer(swapped).Put(1)).bytes());  // of a kind unknown
  file.Put(Packet(swapped, 1, 5'000'001, 60, kThree, 2).bytes());
  file.Put(Packet(swapped, 2, 1024 + 512, 3, kThree).bytes());
  const Result result = ReadAll(file.bytes());
  EXPECT_EQ(result.outcome, Outcome::kEnd) << result.error;
  ASSERT_EQ(result.records.size(), 3u);
  EXPECT_EQ(result.records[0].seconds, 5);
  EXPECT_EQ(result.records[0].nanoseconds, 1u);
  EXPECT_EQ(result.records[0].direction, Direction::kIn);
  EXPECT_EQ(result.records[1].seconds, 5);
  EXPECT_EQ(result.records[1].nanoseconds, 1000u);
  EXPECT_EQ(result.records[1].link_type, kLinkTypeLinuxSll);
  EXPECT_EQ(result.records[1].direction, Direction::kOut);
  EXPECT_EQ(result.records[1].original_length, 60u);
  EXPECT_EQ(result.records[2].seconds, 1001);
  EXPECT_EQ(result.records[2].nanoseconds, 500'000'000u);
  EXPECT_EQ(result.records[2].direction, Direction::kUnknown);
  for (const Bytes& bytes : result.bytes) EXPECT_EQ(bytes, kThree);
}

TEST_P(ByteOrderTest, PcapngWithOtherPacketBlocks) {
  const bool swapped = GetParam();
  Writer file = SectionHeader(swapped);
  file.Put(Interface(swapped, 1, 0).bytes());
  file.Block(3, Writer(swapped).Put(3).Put(kThree).Pad());
  Writer old(swapped);
  old.Put(uint16_t{0}).Put(uint16_t{0}).Put(0).Put(9).Put(3).Put(3).Put(kThree).Pad();
  file.Block(2, old);
  const Result result = ReadAll(file.bytes());
  ASSERT_EQ(result.records.size(), 2u) << result.error;
  EXPECT_FALSE(result.records[0].has_time);
  EXPECT_EQ(result.records[1].nanoseconds, 9000u);
  for (const Bytes& bytes : result.bytes) EXPECT_EQ(bytes, kThree);
}

TEST(CaptureReaderTest, ASectionMayChangeTheByteOrder) {
  Writer file = SectionHeader(false);
  file.Put(Interface(false, 1, 0).bytes()).Put(Packet(false, 0, 1, 3, kThree).bytes());
  file.Put(SectionHeader(true).bytes()).Put(Interface(true, 101, 0).bytes());
  file.Put(Packet(true, 0, 2, 3, kThree).bytes());
  const Result result = ReadAll(file.bytes());
  ASSERT_EQ(result.records.size(), 2u) << result.error;
  EXPECT_EQ(result.records[1].link_type, kLinkTypeRaw);
  EXPECT_EQ(result.records[1].nanoseconds, 2000u);
  // Its interfaces are gone.
  file.Put(SectionHeader(false).bytes()).Put(Packet(false, 0, 1, 3, kThree).bytes());
  EXPECT_EQ(ReadAll(file.bytes()).outcome, Outcome::kDamaged);
}

TEST(CaptureReaderTest, OptionsThatAreLongerThanTheirBlockAreDamage) {
  const auto interface_with = [](uint16_t length, bool has_end) {
    Writer body(false);
    body.Put(uint16_t{1}).Put(uint16_t{0}).Put(uint32_t{0});
    body.Put(uint16_t{2}).Put(length).Put(kThree).Pad();
    if (has_end) body.Put(uint32_t{0});
    Writer file = SectionHeader(false);
    file.Put(Writer(false).Block(1, body).bytes()).Put(Packet(false, 0, 1, 3, kThree, 1).bytes());
    return ReadAll(file.bytes()).outcome;
  };
  EXPECT_EQ(interface_with(3, true), Outcome::kEnd);
  EXPECT_EQ(interface_with(3, false), Outcome::kEnd);
  EXPECT_EQ(interface_with(5, false), Outcome::kDamaged);
  EXPECT_EQ(interface_with(60000, true), Outcome::kDamaged);
  Writer body(false);
  body.Put(0)
      .Put(0)
      .Put(0)
      .Put(3)
      .Put(3)
      .Put(kThree)
      .Pad()
      .Put(uint16_t{2})
      .Put(uint16_t{8})
      .Put(1);
  Writer file = SectionHeader(false);
  file.Put(Interface(false, 1, 9).bytes()).Block(6, body);
  EXPECT_EQ(ReadAll(file.bytes()).outcome, Outcome::kDamaged);
}

TEST(CaptureReaderTest, WhatIsNoCapture) {
  EXPECT_EQ(ReadAll({}).outcome, Outcome::kNotACapture);
  EXPECT_EQ(ReadAll(kThree).outcome, Outcome::kNotACapture);
  EXPECT_EQ(ReadAll(Bytes(100, std::byte{'x'})).outcome, Outcome::kNotACapture);
}

TEST(CaptureReaderTest, CutAnywhereGivesWhatWasBefore) {
  Writer pcap = Pcap(false, 0xA1B2C3D4, 1);
  pcap.Put(7).Put(1).Put(3).Put(3).Put(kThree);
  const size_t one = pcap.bytes().size();
  pcap.Put(7).Put(1).Put(3).Put(3).Put(kThree);
  for (size_t cut = one + 1; cut < pcap.bytes().size(); ++cut) {
    const Bytes& all = pcap.bytes();
    const Result result = ReadAll(Bytes(all.begin(), all.begin() + static_cast<ptrdiff_t>(cut)));
    EXPECT_EQ(result.outcome, Outcome::kDamaged) << cut;
    EXPECT_EQ(result.records.size(), 1u) << cut;
  }
}

TEST(CaptureReaderTest, LengthsThatAreNotTrue) {
  Writer huge = Pcap(false, 0xA1B2C3D4, 1);
  huge.Put(7).Put(1).Put(0xFFFFFFFFu).Put(3).Put(kThree);
  EXPECT_EQ(ReadAll(huge.bytes()).outcome, Outcome::kDamaged);
  for (const uint32_t length : {0u, 4u, 13u, 0xFFFFFFFCu}) {
    Writer block = SectionHeader(false);
    block.Put(1).Put(length).Put(Bytes(64));
    EXPECT_EQ(ReadAll(block.bytes()).outcome, Outcome::kDamaged) << length;
  }
  Writer two = SectionHeader(false);
  two.Put(1).Put(20).Put(uint64_t{0}).Put(24);
  EXPECT_EQ(ReadAll(two.bytes()).outcome, Outcome::kDamaged);
  // A packet longer than its block.
  Writer file = SectionHeader(false);
  file.Put(Interface(false, 1, 0).bytes());
  file.Block(6, Writer(false).Put(0).Put(0).Put(0).Put(5).Put(5).Put(0));
  EXPECT_EQ(ReadAll(file.bytes()).outcome, Outcome::kDamaged);
}

Bytes ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto* p = reinterpret_cast<const std::byte*>(text.data());
  return {p, p + text.size()};
}

TEST(DissectTest, RecordedFramesAreReencodedByteForByte) {
  size_t frames = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(ROCI_VECTOR_DIR)) {
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

roce::Path TestPath(bool is_ipv6) {
  roce::Path path;
  path.dst_mac = roce::Mac{{2, 0, 0, 0, 0, 1}};
  path.src_mac = roce::Mac{{2, 0, 0, 0, 0, 2}};
  path.src_gid = is_ipv6 ? roce::Gid{{0xFD, 1}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 1}});
  path.dst_gid = is_ipv6 ? roce::Gid{{0xFD, 2}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 2}});
  path.traffic_class = 0x6A;
  path.flow_label = is_ipv6 ? 0x12345 : 0;
  path.udp_src_port = 0xC123;
  return path;
}

Bytes Encode(const roce::Path& path, roce::Opcode opcode, uint32_t payload_length) {
  const roce::FrameTemplate tmpl(path);
  roce::TxPacket tx;
  tx.opcode = opcode;
  tx.psn = roce::Psn(0xABCDEF);
  tx.dest_qpn = roce::Qpn(0x123456);
  tx.payload_length = payload_length;
  tx.ext.reth = {0x1122334455667788, roce::Key(0x99), 77};
  tx.ext.imm = {0xCAFE};
  tx.ext.aeth = roce::Aeth::Nak(roce::Msn(5), roce::NakCode::kRemoteAccessError);
  tx.ext.xrc = {0x77};
  tx.ext.deth = {0x80010000, roce::Qpn(1)};
  const Bytes payload(payload_length, std::byte{0x5A});
  Bytes frame(roce::FrameBytes(tmpl, tx));
  roce::EncodeFrame(tmpl, tx, payload.data(), 7, frame.data());
  return frame;
}

std::optional<DecodedFrame> DissectWhole(const Bytes& frame, uint32_t link_type = 1) {
  return Dissect(frame, static_cast<uint32_t>(frame.size()), link_type).roce;
}

FrameKind KindOf(const Bytes& frame, uint32_t link_type = 1) {
  return Dissect(frame, static_cast<uint32_t>(frame.size()), link_type).kind;
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
                                         {roce::ExtHeader::kFeth, "feth"}}) {
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

// Puts the right ICRC under what was changed.
void FixIcrc(Bytes& frame, bool is_ipv6) {
  const size_t covered = frame.size() - 14 - roce::kIcrcBytes;
  roce::StoreIcrc(&frame[14 + covered],
                  roce::ActiveCrcKernel().masked(&frame[14], covered, is_ipv6));
}

TEST(DissectTest, WhatIsReservedAndPaddedMayHoldAnything) {
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
  for (size_t kept = 42; kept < bytes.size(); ++kept) {
    const auto frame = Dissect(all.first(kept), static_cast<uint32_t>(bytes.size()), 1).roce;
    ASSERT_TRUE(frame.has_value()) << kept;
    EXPECT_TRUE(frame->cut);
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
  for (size_t kept = 0; kept < 42; ++kept) {
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

TEST(DissectTest, OtherLinkLayers) {
  const Bytes ethernet = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 5);
  const Bytes network(ethernet.begin() + 14, ethernet.end());
  Bytes cooked(16);
  cooked[14] = std::byte{0x08};
  cooked.insert(cooked.end(), network.begin(), network.end());
  Bytes cooked2(20);
  cooked2[0] = std::byte{0x08};
  cooked2.insert(cooked2.end(), network.begin(), network.end());
  Bytes tagged(16);
  tagged[14] = std::byte{0x81};
  for (const int byte : {0x00, 0x05, 0x08, 0x00}) tagged.push_back(static_cast<std::byte>(byte));
  tagged.insert(tagged.end(), network.begin(), network.end());
  Bytes loop = {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{2}};
  loop.insert(loop.end(), network.begin(), network.end());
  Bytes null = loop;
  std::reverse(null.begin(), null.begin() + 4);
  const Bytes ethernet6 = Encode(TestPath(true), roce::Opcode::kRcSendOnly, 5);
  Bytes null6 = {std::byte{30}, std::byte{0}, std::byte{0}, std::byte{0}};
  null6.insert(null6.end(), ethernet6.begin() + 14, ethernet6.end());
  // A provider's tag around a customer's.
  Bytes stacked(ethernet.begin(), ethernet.begin() + 12);
  for (const int byte : {0x88, 0xA8, 0x20, 0x07, 0x81, 0x00, 0x00, 0x09, 0x08, 0x00}) {
    stacked.push_back(static_cast<std::byte>(byte));
  }
  stacked.insert(stacked.end(), network.begin(), network.end());
  for (const auto& [bytes, link_type] : {std::pair{network, kLinkTypeRaw},
                                         {network, kLinkTypeIpv4},
                                         {network, kLinkTypeOldRaw},
                                         {network, kLinkTypeOpenBsdRaw},
                                         {tagged, kLinkTypeLinuxSll},
                                         {loop, kLinkTypeLoop},
                                         {loop, kLinkTypeNull},
                                         {null, kLinkTypeNull},
                                         {null6, kLinkTypeNull},
                                         {cooked, kLinkTypeLinuxSll},
                                         {cooked2, kLinkTypeLinuxSll2},
                                         {stacked, kLinkTypeEthernet}}) {
    const auto frame = DissectWhole(bytes, link_type);
    ASSERT_TRUE(frame.has_value()) << link_type;
    EXPECT_EQ(frame->reencoded, ReencodeVerdict::kSame) << link_type;
    EXPECT_EQ(frame->ethernet.has_value(), link_type == kLinkTypeEthernet);
  }
  EXPECT_EQ(DissectWhole(stacked)->vlans.size(), 2u);
  EXPECT_EQ(DissectWhole(tagged, kLinkTypeLinuxSll)->vlans.size(), 1u);
  EXPECT_EQ(KindOf(ethernet, 147), FrameKind::kLinkType);
  loop[3] = std::byte{7};
  EXPECT_EQ(KindOf(loop, kLinkTypeLoop), FrameKind::kOther);
}

// Puts extension headers between the IPv6 header and UDP.
Bytes WithExtensions(Bytes frame, uint8_t first, std::initializer_list<int> headers) {
  frame[20] = static_cast<std::byte>(first);
  roce::StoreBe<uint16_t>(
      &frame[18], static_cast<uint16_t>(roce::LoadBe<uint16_t>(&frame[18]) + headers.size()));
  Bytes extensions;
  for (const int byte : headers) extensions.push_back(static_cast<std::byte>(byte));
  frame.insert(frame.begin() + 54, extensions.begin(), extensions.end());
  return frame;
}

TEST(DissectTest, ExtensionHeadersDoNotHideRoce) {
  const Bytes plain = Encode(TestPath(true), roce::Opcode::kRcSendOnly, 8);
  const Bytes options = WithExtensions(plain, 0,
                                       {60, 0, 1, 4, 0, 0, 0, 0,  //
                                        17, 0, 1, 4, 0, 0, 0, 0});
  const auto frame = DissectWhole(options);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->malformed, roce::DropReason::kIpv6Extension);
  EXPECT_EQ(frame->ipv6_extension_bytes, 16u);
  EXPECT_EQ(frame->icrc, IcrcVerdict::kUnchecked);
  EXPECT_EQ(frame->payload_bytes, 8u);
  EXPECT_EQ(frame->trailer_bytes, 0u);
  EXPECT_TRUE(frame->failed());
  EXPECT_EQ(Describe({.bytes = options}, *frame)["malformed"], "ipv6_extension");
  // The first fragment is shown, later ones could be anything.
  EXPECT_EQ(DissectWhole(WithExtensions(plain, 44, {17, 0, 0, 1, 0, 0, 0, 7}))->malformed,
            roce::DropReason::kIpv6Fragment);
  EXPECT_EQ(DissectWhole(WithExtensions(plain, 0,
                                        {44, 0, 1, 4, 0, 0, 0, 0,  //
                                         17, 0, 0, 1, 0, 0, 0, 7}))
                ->malformed,
            roce::DropReason::kIpv6Fragment);
  EXPECT_EQ(KindOf(WithExtensions(plain, 44, {17, 0, 0, 8, 0, 0, 0, 7})), FrameKind::kOther);
  EXPECT_EQ(KindOf(WithExtensions(plain, 0, {58, 0, 1, 4, 0, 0, 0, 0})), FrameKind::kOther);
  EXPECT_EQ(KindOf(WithExtensions(plain, 0, {17, 255, 1, 4, 0, 0, 0, 0})), FrameKind::kHeaders);
  // Longer chains than anybody has are not followed.
  Bytes chain = plain;
  for (int i = 0; i < 9; ++i)
    chain = WithExtensions(chain, 60, {i == 0 ? 17 : 60, 0, 1, 4, 0, 0, 0, 0});
  EXPECT_EQ(KindOf(chain), FrameKind::kHeaders);
}

TEST(DissectTest, WhatIsNoRoce) {
  Bytes other_port = Encode(TestPath(false), roce::Opcode::kRcSendOnly, 4);
  other_port[36] ^= std::byte{1};
  EXPECT_FALSE(DissectWhole(other_port).has_value());
  Bytes arp(60);
  arp[12] = std::byte{8};
  arp[13] = std::byte{6};
  EXPECT_FALSE(DissectWhole(arp).has_value());
  EXPECT_FALSE(DissectWhole({}).has_value());
  EXPECT_EQ(KindOf(other_port), FrameKind::kOther);
  EXPECT_EQ(KindOf(arp), FrameKind::kOther);
  arp[12] = std::byte{0x89};
  arp[13] = std::byte{0x15};
  EXPECT_EQ(KindOf(arp), FrameKind::kRoceV1);
}

TEST(DescribeTest, TimesBefore1970) {
  Writer file = SectionHeader(false);
  file.Put(Interface(false, 1, 9, -3).bytes());
  file.Put(Packet(false, 0, 1'250'000'000, 3, kThree).bytes());
  file.Put(Packet(false, 0, 2'250'000'000, 3, kThree).bytes());
  file.Put(Packet(false, 0, 1'000'000'000, 3, kThree).bytes());
  const Result result = ReadAll(file.bytes());
  ASSERT_EQ(result.records.size(), 3u) << result.error;
  const auto frame = *DissectWhole(Encode(TestPath(false), roce::Opcode::kRcSendOnly, 5));
  EXPECT_EQ(Describe(result.records[0], frame)["time"], "-1.750000000");
  EXPECT_EQ(Describe(result.records[1], frame)["time"], "-0.750000000");
  EXPECT_EQ(Describe(result.records[2], frame)["time"], "-2.000000000");
}

TEST(DescribeTest, TheLineHasEveryFieldOfTheObject) {
  const Bytes bytes = Encode(TestPath(true), roce::Opcode::kXrcWriteOnlyImm, 5);
  const CaptureRecord record{.number = 3,
                             .has_time = true,
                             .seconds = 5,
                             .nanoseconds = 6,
                             .direction = Direction::kOut,
                             .original_length = 99,
                             .bytes = bytes};
  const auto words = Describe(record, *DissectWhole(bytes));
  const std::string line = DescribeInText(words);
  EXPECT_TRUE(line.starts_with("3 5.000000006 interface=0 direction=out length=99 ")) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
  for (const auto& [name, value] : words.items()) {
    if (!value.is_object()) continue;
    const size_t at = line.find(" " + name + "{");
    ASSERT_NE(at, std::string::npos) << name;
    for (const auto& [field, unused] : value.items()) {
      EXPECT_NE(line.find(field + "=", at), std::string::npos) << name << "." << field;
    }
  }
}

}  // namespace
}  // namespace roci::tools
