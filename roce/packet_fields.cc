#include "roce/packet_fields.h"

#include <algorithm>
#include <array>

#include "roce/headers.h"

namespace roci::roce {
namespace {

using enum ExtHeader;

constexpr auto kFields = std::to_array<PacketField>({
    {"bth.opcode", std::nullopt, 0, 8},
    {"bth.se", std::nullopt, 8, 1},
    {"bth.migreq", std::nullopt, 9, 1},
    {"bth.padcnt", std::nullopt, 10, 2},
    {"bth.tver", std::nullopt, 12, 4},
    {"bth.pkey", std::nullopt, 16, 16},
    {"bth.fecn", std::nullopt, 32, 1},
    {"bth.becn", std::nullopt, 33, 1},
    {"bth.destqp", std::nullopt, 40, 24},
    {"bth.ackreq", std::nullopt, 64, 1},
    {"bth.psn", std::nullopt, 72, 24},
    {"deth.qkey", kDeth, 0, 32},
    {"deth.srcqp", kDeth, 40, 24},
    {"xrceth.srq", kXrcEth, 8, 24},
    {"feth.placement", kFeth, 28, 4},
    {"feth.selectivity", kFeth, 26, 2},
    {"reth.va", kReth, 0, 64},
    {"reth.rkey", kReth, 64, 32},
    {"reth.length", kReth, 96, 32},
    {"atomiceth.va", kAtomicEth, 0, 64},
    {"atomiceth.rkey", kAtomicEth, 64, 32},
    {"atomiceth.swap", kAtomicEth, 96, 64},
    {"atomiceth.compare", kAtomicEth, 160, 64},
    {"aeth.syndrome", kAeth, 0, 8},
    {"aeth.msn", kAeth, 8, 24},
    {"atomicacketh.value", kAtomicAckEth, 0, 64},
    {"immdt.data", kImmDt, 0, 32},
    {"ieth.rkey", kIeth, 0, 32},
});

struct NamedValue {
  std::string_view field;
  std::string_view name;
  uint64_t value;
};

constexpr uint64_t Nak(NakCode code) { return Aeth::Nak(Msn(0), code).syndrome; }

constexpr auto kValues = std::to_array<NamedValue>({
    {"aeth.syndrome", "ack", Aeth::Ack(Msn(0)).syndrome},
    {"aeth.syndrome", "rnr_nak", Aeth::RnrNak(Msn(0), 0).syndrome},
    {"aeth.syndrome", "nak_psn", Nak(NakCode::kPsnSequenceError)},
    {"aeth.syndrome", "nak_invalid", Nak(NakCode::kInvalidRequest)},
    {"aeth.syndrome", "nak_access", Nak(NakCode::kRemoteAccessError)},
    {"aeth.syndrome", "nak_operational", Nak(NakCode::kRemoteOperationalError)},
});

constexpr uint32_t kByteBits = 8;

// Where the field begins in the packet, in bits; nothing: the packet does not have it.
std::optional<size_t> BitOf(std::span<const std::byte> transport, const PacketField& field) {
  if (transport.size() < kBthBytes) return std::nullopt;
  size_t bit = field.bit;
  if (field.header.has_value()) {
    const OpcodeInfo& info = kOpcodeTable[std::to_integer<uint8_t>(transport[0])];
    if (!info.known || !info.Has(*field.header)) return std::nullopt;
    bit += size_t{info.OffsetOf(*field.header)} * kByteBits;
  }
  if (bit + field.bits > transport.size() * kByteBits) return std::nullopt;
  return bit;
}

}  // namespace

std::span<const PacketField> PacketFields() { return kFields; }

const PacketField* FindPacketField(std::string_view name) {
  const auto it = std::find_if(kFields.begin(), kFields.end(),
                               [name](const PacketField& field) { return field.name == name; });
  return it == kFields.end() ? nullptr : &*it;
}

std::optional<uint64_t> FindFieldValue(const PacketField& field, std::string_view name) {
  for (const NamedValue& value : kValues) {
    if (value.field == field.name && value.name == name) return value.value;
  }
  return std::nullopt;
}

std::optional<uint64_t> ReadField(std::span<const std::byte> transport, const PacketField& field) {
  const std::optional<size_t> begin = BitOf(transport, field);
  if (!begin.has_value()) return std::nullopt;
  uint64_t value = 0;
  for (size_t bit = *begin; bit != *begin + field.bits; ++bit) {
    const auto byte = std::to_integer<uint32_t>(transport[bit / kByteBits]);
    value = value << 1 | (byte >> (kByteBits - 1 - bit % kByteBits) & 1);
  }
  return value;
}

bool WriteField(std::span<std::byte> transport, const PacketField& field, uint64_t value) {
  const std::optional<size_t> begin = BitOf(transport, field);
  if (!begin.has_value()) return false;
  for (size_t i = 0; i != field.bits; ++i) {
    const size_t bit = *begin + i;
    const auto mask = static_cast<std::byte>(1u << (kByteBits - 1 - bit % kByteBits));
    std::byte& byte = transport[bit / kByteBits];
    byte = (value >> (field.bits - 1 - i) & 1) != 0 ? byte | mask : byte & ~mask;
  }
  return true;
}

}  // namespace roci::roce
