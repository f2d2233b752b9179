// Fields of packets by name.
#include "roce/packet_fields.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <set>
#include <string_view>

#include "roce/headers.h"

namespace roci::roce {
namespace {

const PacketField& Field(std::string_view name) { return *FindPacketField(name); }

TEST(PacketFieldsTest, TheBthIsThatOfTheParser) {
  std::array<std::byte, Bth::kBytes> bytes{};
  const auto set = [&bytes](std::string_view name, uint64_t value) {
    EXPECT_TRUE(WriteField(bytes, Field(name), value)) << name;
  };
  set("bth.opcode", 0x11);
  set("bth.se", 1);
  set("bth.padcnt", 3);
  set("bth.pkey", 0xABCD);
  set("bth.becn", 1);
  set("bth.destqp", 0x123456);
  set("bth.ackreq", 1);
  set("bth.psn", 0xFEDCBA);
  const Bth bth = Bth::Load(bytes.data());
  EXPECT_EQ(bth.opcode, Opcode::kRcAcknowledge);
  EXPECT_TRUE(bth.solicited);
  EXPECT_FALSE(bth.mig_req);
  EXPECT_EQ(bth.pad_count, 3);
  EXPECT_EQ(bth.pkey, 0xABCD);
  EXPECT_FALSE(bth.fecn);
  EXPECT_TRUE(bth.becn);
  EXPECT_EQ(bth.dest_qpn, Qpn(0x123456));
  EXPECT_TRUE(bth.ack_request);
  EXPECT_EQ(bth.psn, Psn(0xFEDCBA));
  EXPECT_EQ(ReadField(bytes, Field("bth.psn")), 0xFEDCBAu);
}

TEST(PacketFieldsTest, ExtensionHeadersAreWhereTheOpcodeHasThem) {
  std::array<std::byte, 64> bytes{};
  WriteField(bytes, Field("bth.opcode"), static_cast<uint8_t>(Opcode::kRcReadResponseOnly));
  EXPECT_TRUE(WriteField(bytes, Field("aeth.msn"), 0x123456));
  EXPECT_EQ(Aeth::Load(bytes.data() + Bth::kBytes).msn, Msn(0x123456));
  EXPECT_FALSE(WriteField(bytes, Field("reth.va"), 1));
  WriteField(bytes, Field("bth.opcode"), static_cast<uint8_t>(Opcode::kRcReadRequest));
  EXPECT_TRUE(WriteField(bytes, Field("reth.va"), 0x0123456789ABCDEF));
  EXPECT_TRUE(WriteField(bytes, Field("reth.length"), 0x87654321));
  const Reth reth = Reth::Load(bytes.data() + Bth::kBytes);
  EXPECT_EQ(reth.va, 0x0123456789ABCDEFu);
  EXPECT_EQ(reth.length, 0x87654321u);
  // Reserved opcodes have a BTH only.
  WriteField(bytes, Field("bth.opcode"), 0xFF);
  EXPECT_FALSE(ReadField(bytes, Field("reth.va")).has_value());
}

TEST(PacketFieldsTest, NothingOutsideOfThePacket) {
  std::array<std::byte, Bth::kBytes + Aeth::kBytes> bytes{};
  WriteField(bytes, Field("bth.opcode"), static_cast<uint8_t>(Opcode::kRcAcknowledge));
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::span<std::byte> cut = std::span(bytes).first(length);
    EXPECT_FALSE(ReadField(cut, Field("aeth.msn")).has_value()) << length;
    EXPECT_FALSE(WriteField(cut, Field("aeth.msn"), 1)) << length;
    EXPECT_EQ(ReadField(cut, Field("bth.psn")).has_value(), length >= Bth::kBytes) << length;
  }
}

TEST(PacketFieldsTest, NamesAreUnique) {
  std::set<std::string_view> names;
  for (const PacketField& field : PacketFields()) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_EQ(FindPacketField(field.name), &field);
  }
  EXPECT_EQ(FindPacketField("bth"), nullptr);
  EXPECT_TRUE(IsOpcode(Field("bth.opcode")));
  EXPECT_FALSE(IsOpcode(Field("bth.se")) || IsOpcode(Field("deth.qkey")));
  EXPECT_EQ(FindFieldValue(Field("aeth.syndrome"), "nak_access"), 0x62u);
  EXPECT_FALSE(FindFieldValue(Field("aeth.msn"), "nak_access").has_value());
}

}  // namespace
}  // namespace roci::roce
