// The fields of the transport headers by name, to be read and changed in a packet (IBTA vol 1, 9.2
// and 9.3). Not for the hot path.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "roce/opcode.h"

namespace roci::roce {

struct PacketField {
  std::string_view name;            // "bth.psn"
  std::optional<ExtHeader> header;  // nothing: the BTH
  uint8_t bit = 0;                  // of the header, from its most significant bit on
  uint8_t bits = 0;                 // 1..64
};

// Every field, sorted by header.
std::span<const PacketField> PacketFields();
const PacketField* FindPacketField(std::string_view name);
// The values of a field that have names, such as "nak_access" of aeth.syndrome.
std::optional<uint64_t> FindFieldValue(const PacketField& field, std::string_view name);

constexpr bool IsOpcode(const PacketField& field) {
  return !field.header.has_value() && field.bit == 0;
}
// The field's largest value.
constexpr uint64_t MostOf(const PacketField& field) {
  return field.bits == 64 ? UINT64_MAX : (uint64_t{1} << field.bits) - 1;
}

// `transport`: the packet from its BTH on. Nothing, or false: a packet of this opcode has no such
// field, or is too short for it. `value` is reduced to the field's bits.
std::optional<uint64_t> ReadField(std::span<const std::byte> transport, const PacketField& field);
bool WriteField(std::span<std::byte> transport, const PacketField& field, uint64_t value);

}  // namespace roci::roce
