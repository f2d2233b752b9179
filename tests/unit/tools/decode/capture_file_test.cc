// Capture files of all kinds, whole and damaged.
#include "tools/decode/capture_file.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "tests/unit/tools/decode/captures.h"

namespace roci::tools {
namespace {

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

TEST_P(ByteOrderTest, PcapAsKuznetsovModifiedIt) {
  Writer file = Pcap(GetParam(), 0xA1B2CD34, kLinkTypeEthernet);
  for (const uint8_t type : {uint8_t{0}, uint8_t{4}}) {
    file.Put(7).Put(123456).Put(3).Put(100).Put(5).Put(uint16_t{0x800}).Put(type).Put(uint8_t{0});
    file.Put(kThree);
  }
  const Result result = ReadAll(file.bytes());
  ASSERT_EQ(result.records.size(), 2u) << result.error;
  EXPECT_EQ(result.bytes[1], kThree);
  EXPECT_EQ(result.records[1].nanoseconds, 123456000u);
  EXPECT_EQ(result.records[1].original_length, 100u);
  EXPECT_EQ(result.records[1].interface, 5u);
  EXPECT_EQ(result.records[0].direction, Direction::kIn);
  EXPECT_EQ(result.records[1].direction, Direction::kOut);
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

TEST_P(ByteOrderTest, PcapngThatCountsWhatItLacks) {
  const bool swapped = GetParam();
  Writer statistics(swapped);
  statistics.Put(0).Put(0).Put(0);
  for (const uint16_t code : {uint16_t{4}, uint16_t{5}, uint16_t{7}}) {
    statistics.Put(code).Put(uint16_t{8}).Put(uint64_t{code} << 32);
  }
  statistics.Put(uint32_t{0});
  Writer file = SectionHeader(swapped);
  file.Put(Interface(swapped, 1, 0).bytes());
  EXPECT_EQ(ReadAll(file.bytes()).dropped, 0u);
  file.Block(5, statistics);
  EXPECT_EQ(ReadAll(file.bytes()).dropped, uint64_t{12} << 32);
}

TEST(CaptureReaderTest, FilesThatAreNoCaptures) {
  EXPECT_EQ(ReadAll({}).outcome, Outcome::kNotACapture);
  EXPECT_EQ(ReadAll(kThree).outcome, Outcome::kNotACapture);
  EXPECT_EQ(ReadAll(Bytes(100, std::byte{'x'})).outcome, Outcome::kNotACapture);
}

TEST(CaptureReaderTest, CompressedFilesAreNamedAndHowTheyAreRead) {
  const auto error_of = [](std::initializer_list<int> bytes) {
    Bytes file;
    for (const int byte : bytes) file.push_back(static_cast<std::byte>(byte));
    file.resize(64);
    return ReadAll(file).error;
  };
  EXPECT_NE(error_of({0x1F, 0x8B, 8, 0}).find("gzip: zcat FILE | roci decode -"),
            std::string::npos);
  EXPECT_NE(error_of({0x28, 0xB5, 0x2F, 0xFD}).find("zstdcat"), std::string::npos);
  EXPECT_NE(error_of({0x04, 0x22, 0x4D, 0x18}).find("lz4cat"), std::string::npos);
  EXPECT_NE(error_of({0xFD, '7', 'z', 'X'}).find("xzcat"), std::string::npos);
  EXPECT_NE(error_of({'B', 'Z', 'h', '9'}).find("bzcat"), std::string::npos);
  EXPECT_NE(error_of({'s', 'n', 'o', 'o'}).find("editcap"), std::string::npos);
}

TEST(CaptureReaderTest, TruncatedFilesGiveTheRecordsBefore) {
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

TEST(CaptureReaderTest, FalseLengthsAreDamage) {
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

}  // namespace
}  // namespace roci::tools
