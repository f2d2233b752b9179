#include "roce/opcode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace roci::roce {
namespace {

using enum ExtHeader;

// The extension headers of each opcode in wire order, from IBTA vol 1, table 38 and annexes A14,
// A17 and A19, independently of opcode.cc.
struct Expected {
  uint8_t code;
  std::vector<ExtHeader> headers;
};

std::vector<Expected> ConnectedOpcodes(uint8_t base, bool xrc) {
  std::vector<Expected> rows = {
      {0x00, {}},
      {0x01, {}},
      {0x02, {}},
      {0x03, {kImmDt}},
      {0x04, {}},
      {0x05, {kImmDt}},
      {0x06, {kReth}},
      {0x07, {}},
      {0x08, {}},
      {0x09, {kImmDt}},
      {0x0A, {kReth}},
      {0x0B, {kReth, kImmDt}},
      {0x0C, {kReth}},
      {0x0D, {kAeth}},
      {0x0E, {}},
      {0x0F, {kAeth}},
      {0x10, {kAeth}},
      {0x11, {kAeth}},
      {0x12, {kAeth, kAtomicAckEth}},
      {0x13, {kAtomicEth}},
      {0x14, {kAtomicEth}},
      {0x16, {kIeth}},
      {0x17, {kIeth}},
      {0x1C, {kFeth, kReth}},
      {0x1D, {kReth}},
  };
  for (Expected& row : rows) {
    const bool response = row.code >= 0x0D && row.code <= 0x12;
    if (xrc && !response) row.headers.insert(row.headers.begin(), kXrcEth);
    row.code = static_cast<uint8_t>(row.code | base);
  }
  return rows;
}

std::vector<Expected> AllExpected() {
  std::vector<Expected> all = ConnectedOpcodes(0x00, false);
  for (const Expected& row : ConnectedOpcodes(0x20, false)) {
    if (row.code <= 0x2B) all.push_back(row);
  }
  for (const Expected& row : ConnectedOpcodes(0xA0, true)) all.push_back(row);
  all.push_back({0x64, {kDeth}});
  all.push_back({0x65, {kDeth, kImmDt}});
  all.push_back({0x81, {kCnpReserved}});
  all.push_back({0xD1, {kAeth, kMissing}});  // deviations.md
  return all;
}

TEST(OpcodeTable, HasExactlyTheKnownOpcodes) {
  std::set<int> expected;
  for (const Expected& row : AllExpected()) expected.insert(row.code);
  std::set<int> known;
  for (int code = 0; code < 256; ++code) {
    const OpcodeInfo& info = InfoOf(static_cast<Opcode>(code));
    EXPECT_EQ(static_cast<int>(info.opcode), code);
    if (info.known) known.insert(code);
  }
  EXPECT_EQ(known, expected);
}

TEST(OpcodeTable, OffsetsFollowTheOrderOnTheWire) {
  for (const Expected& row : AllExpected()) {
    const OpcodeInfo& info = InfoOf(static_cast<Opcode>(row.code));
    SCOPED_TRACE(info.name);
    uint32_t offset = 12;
    for (size_t i = 0; i < kExtHeaderCount; ++i) {
      const auto header = static_cast<ExtHeader>(i);
      const bool listed = std::ranges::find(row.headers, header) != row.headers.end();
      EXPECT_EQ(info.Has(header), listed) << i;
      if (!listed) {
        EXPECT_EQ(info.OffsetOf(header), 0u);
      }
    }
    for (const ExtHeader header : row.headers) {
      EXPECT_EQ(info.OffsetOf(header), offset);
      offset += kExtHeaderBytes[static_cast<size_t>(header)];
    }
    EXPECT_EQ(info.header_bytes, offset);
  }
}

TEST(OpcodeTable, LengthsAgreeWithTheHeadersOfWellKnownPackets) {
  EXPECT_EQ(InfoOf(Opcode::kRcWriteOnly).header_bytes, 28);
  EXPECT_EQ(InfoOf(Opcode::kRcAcknowledge).header_bytes, 16);
  EXPECT_EQ(InfoOf(Opcode::kRcAtomicAcknowledge).header_bytes, 24);
  EXPECT_EQ(InfoOf(Opcode::kRcCompareSwap).header_bytes, 40);
  EXPECT_EQ(InfoOf(Opcode::kUdSendOnlyImm).header_bytes, 24);
  EXPECT_EQ(InfoOf(Opcode::kXrcWriteOnlyImm).header_bytes, 36);
  EXPECT_EQ(InfoOf(Opcode::kXrcAcknowledge).header_bytes, 16);
  EXPECT_EQ(InfoOf(Opcode::kCnp).header_bytes, 28);
}

TEST(OpcodeTable, Meanings) {
  const OpcodeInfo& last = InfoOf(Opcode::kXrcWriteLastImm);
  EXPECT_EQ(last.transport, Transport::kXrc);
  EXPECT_EQ(last.operation, Operation::kWrite);
  EXPECT_EQ(last.position, Position::kLast);
  EXPECT_TRUE(last.IsLast());
  EXPECT_FALSE(last.IsFirst());
  EXPECT_TRUE(last.is_request);
  EXPECT_EQ(std::string(last.name), "XRC_WRITE_LAST_IMM");
  const OpcodeInfo& ack = InfoOf(Opcode::kRcAcknowledge);
  EXPECT_FALSE(ack.is_request);
  EXPECT_EQ(ack.payload, PayloadRule::kNone);
  EXPECT_TRUE(ack.IsFirst() && ack.IsLast());
  EXPECT_EQ(InfoOf(Opcode::kRcReadResponseMiddle).position, Position::kMiddle);
  EXPECT_EQ(InfoOf(Opcode::kRcAtomicWrite).payload, PayloadRule::kEightBytes);
  EXPECT_EQ(InfoOf(Opcode::kCnp).transport, Transport::kCnp);
  EXPECT_EQ(InfoOf(Opcode::kUdSendOnly).transport, Transport::kUd);
  EXPECT_EQ(InfoOf(Opcode::kRcSelectiveNak).transport, Transport::kRc);
  EXPECT_EQ(InfoOf(Opcode::kRcSelectiveNak).operation, Operation::kAcknowledge);
}

TEST(OpcodeTable, PayloadAndResponsesByOperation) {
  for (const OpcodeInfo& info : kOpcodeTable) {
    if (!info.known) continue;
    SCOPED_TRACE(info.name);
    const bool data = info.operation == Operation::kSend || info.operation == Operation::kWrite ||
                      info.operation == Operation::kReadResponse;
    EXPECT_EQ(info.payload == PayloadRule::kAny, data);
    EXPECT_EQ(info.is_request, info.operation != Operation::kReadResponse &&
                                   info.operation != Operation::kAcknowledge &&
                                   info.operation != Operation::kAtomicAcknowledge);
    if (info.Has(kImmDt) || info.Has(kIeth)) {
      EXPECT_TRUE(info.IsLast());
    }
  }
}

TEST(OpcodeTable, SameOperationOnAnotherTransport) {
  EXPECT_EQ(WithTransport(Opcode::kRcSendFirst, Transport::kXrc), Opcode::kXrcSendFirst);
  EXPECT_EQ(WithTransport(Opcode::kRcWriteOnlyImm, Transport::kUc), Opcode::kUcWriteOnlyImm);
  EXPECT_EQ(WithTransport(Opcode::kRcSendOnly, Transport::kUd), Opcode::kUdSendOnly);
  EXPECT_FALSE(InfoOf(WithTransport(Opcode::kRcReadRequest, Transport::kUc)).known);
  for (const OpcodeInfo& info : kOpcodeTable) {
    if (info.known && info.opcode != Opcode::kRcSelectiveNak) {
      EXPECT_EQ(WithTransport(info.opcode, info.transport), info.opcode);
    }
  }
}

}  // namespace
}  // namespace roci::roce
