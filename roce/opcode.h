// The BTH opcodes of RoCEv2 and the table of their operations and headers.
// IBTA vol 1, 9.2.1 (table 38), A17.9.3 (CNP), A19.4 (FLUSH, ATOMIC WRITE). Of the codes 0xC0 to
// 0xFF, which table 38 leaves to manufacturers, one is used for selective repeat.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "roce/types.h"

namespace roci::roce {

enum class Opcode : uint8_t {
  kRcSendFirst = 0x00,
  kRcSendMiddle = 0x01,
  kRcSendLast = 0x02,
  kRcSendLastImm = 0x03,
  kRcSendOnly = 0x04,
  kRcSendOnlyImm = 0x05,
  kRcWriteFirst = 0x06,
  kRcWriteMiddle = 0x07,
  kRcWriteLast = 0x08,
  kRcWriteLastImm = 0x09,
  kRcWriteOnly = 0x0A,
  kRcWriteOnlyImm = 0x0B,
  kRcReadRequest = 0x0C,
  kRcReadResponseFirst = 0x0D,
  kRcReadResponseMiddle = 0x0E,
  kRcReadResponseLast = 0x0F,
  kRcReadResponseOnly = 0x10,
  kRcAcknowledge = 0x11,
  kRcAtomicAcknowledge = 0x12,
  kRcCompareSwap = 0x13,
  kRcFetchAdd = 0x14,
  kRcSendLastInvalidate = 0x16,
  kRcSendOnlyInvalidate = 0x17,
  kRcFlush = 0x1C,
  kRcAtomicWrite = 0x1D,

  kUcSendFirst = 0x20,
  kUcSendMiddle = 0x21,
  kUcSendLast = 0x22,
  kUcSendLastImm = 0x23,
  kUcSendOnly = 0x24,
  kUcSendOnlyImm = 0x25,
  kUcWriteFirst = 0x26,
  kUcWriteMiddle = 0x27,
  kUcWriteLast = 0x28,
  kUcWriteLastImm = 0x29,
  kUcWriteOnly = 0x2A,
  kUcWriteOnlyImm = 0x2B,

  kUdSendOnly = 0x64,
  kUdSendOnlyImm = 0x65,

  kCnp = 0x81,

  kXrcSendFirst = 0xA0,
  kXrcSendMiddle = 0xA1,
  kXrcSendLast = 0xA2,
  kXrcSendLastImm = 0xA3,
  kXrcSendOnly = 0xA4,
  kXrcSendOnlyImm = 0xA5,
  kXrcWriteFirst = 0xA6,
  kXrcWriteMiddle = 0xA7,
  kXrcWriteLast = 0xA8,
  kXrcWriteLastImm = 0xA9,
  kXrcWriteOnly = 0xAA,
  kXrcWriteOnlyImm = 0xAB,
  kXrcReadRequest = 0xAC,
  kXrcReadResponseFirst = 0xAD,
  kXrcReadResponseMiddle = 0xAE,
  kXrcReadResponseLast = 0xAF,
  kXrcReadResponseOnly = 0xB0,
  kXrcAcknowledge = 0xB1,
  kXrcAtomicAcknowledge = 0xB2,
  kXrcCompareSwap = 0xB3,
  kXrcFetchAdd = 0xB4,
  kXrcSendLastInvalidate = 0xB6,
  kXrcSendOnlyInvalidate = 0xB7,
  kXrcFlush = 0xBC,
  kXrcAtomicWrite = 0xBD,

  // A sequence NAK that lists the missing packets (deviations.md).
  kRcSelectiveNak = 0xD1,
};

enum class Operation : uint8_t {
  kSend,
  kWrite,
  kReadRequest,
  kReadResponse,
  kAcknowledge,
  kAtomicAcknowledge,
  kCompareSwap,
  kFetchAdd,
  kFlush,
  kAtomicWrite,
  kCnp,
};

enum class Position : uint8_t { kFirst, kMiddle, kLast, kOnly };

// Extension headers. The enumerators' order is the order on the wire, for every opcode.
enum class ExtHeader : uint8_t {
  kDeth,
  kXrcEth,
  kFeth,
  kReth,
  kAtomicEth,
  kAeth,
  kAtomicAckEth,
  kImmDt,
  kIeth,
  kCnpReserved,  // the 16 reserved bytes of a CNP
  kMissing,      // of a selective NAK
};
inline constexpr size_t kExtHeaderCount = 11;
inline constexpr std::array<uint8_t, kExtHeaderCount> kExtHeaderBytes = {8, 4, 4, 16, 28, 4,
                                                                         8, 4, 4, 16, 32};
inline constexpr uint32_t kBthBytes = 12;

// Valid payload lengths.
enum class PayloadRule : uint8_t {
  kNone,        // 0
  kAny,         // 0..path MTU; the QP checks it against its path MTU and message
  kEightBytes,  // exactly 8 (ATOMIC WRITE)
};

struct OpcodeInfo {
  Opcode opcode{};
  bool known = false;  // false: reserved code, the other fields are meaningless
  bool is_request = false;
  Transport transport{};
  Operation operation{};
  Position position{};
  PayloadRule payload{};
  uint8_t header_bytes = 0;  // BTH and extension headers
  uint16_t ext_mask = 0;     // bit i: ExtHeader i is present
  // Offset of each extension header from the start of the BTH; 0 where it is absent.
  std::array<uint8_t, kExtHeaderCount> ext_offset{};
  const char* name = "reserved";

  static constexpr uint16_t Bit(ExtHeader h) {
    return static_cast<uint16_t>(1u << static_cast<unsigned>(h));
  }
  constexpr bool Has(ExtHeader h) const { return (ext_mask & Bit(h)) != 0; }
  constexpr uint32_t OffsetOf(ExtHeader h) const { return ext_offset[static_cast<size_t>(h)]; }
  // Its answer implies that earlier payloads are placed. A host that delays placing offers it only
  // when they are.
  constexpr bool NeedsPlaced() const {
    return operation == Operation::kCompareSwap || operation == Operation::kFetchAdd ||
           operation == Operation::kAtomicWrite || operation == Operation::kFlush;
  }
  constexpr bool IsFirst() const {
    return position == Position::kFirst || position == Position::kOnly;
  }
  constexpr bool IsLast() const {
    return position == Position::kLast || position == Position::kOnly;
  }
};

// Indexed by the opcode byte; reserved codes have known == false.
extern const std::array<OpcodeInfo, 256> kOpcodeTable;

inline const OpcodeInfo& InfoOf(Opcode opcode) {
  return kOpcodeTable[static_cast<uint8_t>(opcode)];
}

// IBTA vol 1, 9.2.1: the upper three bits of an opcode are the transport.
inline constexpr unsigned kTransportShift = 5;
inline constexpr uint8_t kOperationMask = (1 << kTransportShift) - 1;

// The same operation on another transport: WithTransport(kRcSendFirst, kXrc) == kXrcSendFirst. The
// result may be a reserved code (UC has no READ): check InfoOf(...).known.
constexpr Opcode WithTransport(Opcode opcode, Transport transport) {
  return static_cast<Opcode>((static_cast<uint8_t>(transport) << kTransportShift) |
                             (static_cast<uint8_t>(opcode) & kOperationMask));
}

}  // namespace roci::roce
