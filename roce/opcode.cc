// Builds the opcode table from one row per opcode.
#include "roce/opcode.h"

#include <algorithm>
#include <initializer_list>

namespace roci::roce {
namespace {

using enum Operation;
using enum Position;
using enum ExtHeader;

constexpr uint16_t Mask(std::initializer_list<ExtHeader> headers) {
  uint16_t mask = 0;
  for (const ExtHeader h : headers) mask = static_cast<uint16_t>(mask | OpcodeInfo::Bit(h));
  return mask;
}

// One value of the five low bits of an opcode, for the connected transports. XRC requests also
// carry an XRCETH, responses do not (IBTA vol 1, A14.5).
struct Row {
  uint8_t code;
  Operation operation;
  Position position;
  PayloadRule payload;
  uint16_t ext_mask;
  std::array<const char*, 3> names;  // RC, UC, XRC; null where the transport lacks it
};

constexpr PayloadRule kBytes = PayloadRule::kAny;
constexpr PayloadRule kNothing = PayloadRule::kNone;

#define NAMES_RC_XRC(n) \
  { "RC_" n, nullptr, "XRC_" n }
#define NAMES_ALL(n) \
  { "RC_" n, "UC_" n, "XRC_" n }

constexpr Row kRows[] = {
    {0x00, kSend, kFirst, kBytes, 0, NAMES_ALL("SEND_FIRST")},
    {0x01, kSend, kMiddle, kBytes, 0, NAMES_ALL("SEND_MIDDLE")},
    {0x02, kSend, kLast, kBytes, 0, NAMES_ALL("SEND_LAST")},
    {0x03, kSend, kLast, kBytes, Mask({kImmDt}), NAMES_ALL("SEND_LAST_IMM")},
    {0x04, kSend, kOnly, kBytes, 0, NAMES_ALL("SEND_ONLY")},
    {0x05, kSend, kOnly, kBytes, Mask({kImmDt}), NAMES_ALL("SEND_ONLY_IMM")},
    {0x06, kWrite, kFirst, kBytes, Mask({kReth}), NAMES_ALL("WRITE_FIRST")},
    {0x07, kWrite, kMiddle, kBytes, 0, NAMES_ALL("WRITE_MIDDLE")},
    {0x08, kWrite, kLast, kBytes, 0, NAMES_ALL("WRITE_LAST")},
    {0x09, kWrite, kLast, kBytes, Mask({kImmDt}), NAMES_ALL("WRITE_LAST_IMM")},
    {0x0A, kWrite, kOnly, kBytes, Mask({kReth}), NAMES_ALL("WRITE_ONLY")},
    {0x0B, kWrite, kOnly, kBytes, Mask({kReth, kImmDt}), NAMES_ALL("WRITE_ONLY_IMM")},
    {0x0C, kReadRequest, kOnly, kNothing, Mask({kReth}), NAMES_RC_XRC("READ_REQUEST")},
    {0x0D, kReadResponse, kFirst, kBytes, Mask({kAeth}), NAMES_RC_XRC("READ_RESPONSE_FIRST")},
    {0x0E, kReadResponse, kMiddle, kBytes, 0, NAMES_RC_XRC("READ_RESPONSE_MIDDLE")},
    {0x0F, kReadResponse, kLast, kBytes, Mask({kAeth}), NAMES_RC_XRC("READ_RESPONSE_LAST")},
    {0x10, kReadResponse, kOnly, kBytes, Mask({kAeth}), NAMES_RC_XRC("READ_RESPONSE_ONLY")},
    {0x11, kAcknowledge, kOnly, kNothing, Mask({kAeth}), NAMES_RC_XRC("ACKNOWLEDGE")},
    {0x12, kAtomicAcknowledge, kOnly, kNothing, Mask({kAeth, kAtomicAckEth}),
     NAMES_RC_XRC("ATOMIC_ACKNOWLEDGE")},
    {0x13, kCompareSwap, kOnly, kNothing, Mask({kAtomicEth}), NAMES_RC_XRC("COMPARE_SWAP")},
    {0x14, kFetchAdd, kOnly, kNothing, Mask({kAtomicEth}), NAMES_RC_XRC("FETCH_ADD")},
    {0x16, kSend, kLast, kBytes, Mask({kIeth}), NAMES_RC_XRC("SEND_LAST_INVALIDATE")},
    {0x17, kSend, kOnly, kBytes, Mask({kIeth}), NAMES_RC_XRC("SEND_ONLY_INVALIDATE")},
    {0x1C, kFlush, kOnly, kNothing, Mask({kFeth, kReth}), NAMES_RC_XRC("FLUSH")},
    {0x1D, kAtomicWrite, kOnly, PayloadRule::kEightBytes, Mask({kReth}),
     NAMES_RC_XRC("ATOMIC_WRITE")},
};
#undef NAMES_ALL
#undef NAMES_RC_XRC

constexpr bool IsRequest(Operation operation) {
  return operation != kReadResponse && operation != kAcknowledge && operation != kAtomicAcknowledge;
}

constexpr OpcodeInfo Derive(uint8_t code, Transport transport, const Row& row, uint16_t ext_mask,
                            const char* name) {
  OpcodeInfo info;
  info.opcode = static_cast<Opcode>(code);
  info.known = true;
  info.is_request = IsRequest(row.operation);
  info.transport = transport;
  info.operation = row.operation;
  info.position = row.position;
  info.payload = row.payload;
  info.ext_mask = ext_mask;
  info.name = name;
  uint32_t offset = kBthBytes;
  for (size_t i = 0; i < kExtHeaderCount; ++i) {
    if (!info.Has(static_cast<ExtHeader>(i))) continue;
    info.ext_offset[i] = static_cast<uint8_t>(offset);
    offset += kExtHeaderBytes[i];
  }
  info.header_bytes = static_cast<uint8_t>(offset);
  return info;
}

constexpr std::array<OpcodeInfo, 256> BuildTable() {
  std::array<OpcodeInfo, 256> table{};
  for (size_t code = 0; code < table.size(); ++code) {
    table[code].opcode = static_cast<Opcode>(code);
  }
  const auto add = [&table](Transport transport, const Row& row, uint16_t ext, const char* name) {
    const auto code =
        static_cast<uint8_t>((static_cast<unsigned>(transport) << kTransportShift) | row.code);
    table[code] = Derive(code, transport, row, static_cast<uint16_t>(row.ext_mask | ext), name);
  };
  for (const Row& row : kRows) {
    add(Transport::kRc, row, 0, row.names[0]);
    if (row.names[1] != nullptr) add(Transport::kUc, row, 0, row.names[1]);
    add(Transport::kXrc, row, IsRequest(row.operation) ? Mask({kXrcEth}) : uint16_t{0},
        row.names[2]);
  }
  add(Transport::kUd, {0x04, kSend, kOnly, kBytes, Mask({kDeth}), {}}, 0, "UD_SEND_ONLY");
  add(Transport::kUd, {0x05, kSend, kOnly, kBytes, Mask({kDeth, kImmDt}), {}}, 0,
      "UD_SEND_ONLY_IMM");
  add(Transport::kCnp, {0x01, Operation::kCnp, kOnly, kNothing, Mask({kCnpReserved}), {}}, 0,
      "CNP");
  constexpr Row kSelectiveNak = {0xD1, kAcknowledge, kOnly, kNothing, Mask({kAeth, kMissing}), {}};
  table[kSelectiveNak.code] = Derive(kSelectiveNak.code, Transport::kRc, kSelectiveNak,
                                     kSelectiveNak.ext_mask, "RC_SELECTIVE_NAK");
  return table;
}

}  // namespace

constexpr std::array<OpcodeInfo, 256> kBuiltTable = BuildTable();
constinit const std::array<OpcodeInfo, 256> kOpcodeTable = kBuiltTable;

static_assert(kBuiltTable[0xB4].header_bytes == 12 + 4 + 28, "XRC FETCH_ADD");
static_assert(kBuiltTable[0x0B].OffsetOf(ExtHeader::kImmDt) == 12 + 16, "RC WRITE_ONLY_IMM");
static_assert(kBuiltTable[0x65].OffsetOf(ExtHeader::kImmDt) == 12 + 8, "UD SEND_ONLY_IMM");
static_assert(std::ranges::count_if(kBuiltTable, &OpcodeInfo::known) == 25 + 12 + 25 + 2 + 1 + 1);

}  // namespace roci::roce
