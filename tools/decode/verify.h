// What our own code says of a RoCE packet in a capture: whether it passes gate 1, whether its ICRC
// is right, and whether encoding what was read gives the same bytes again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/decode/dissect.h"

namespace roci::tools {

// Bits of a FETH that mean something; the others are DecodedFrame::feth_reserved.
inline constexpr unsigned kFethBits = 6;

inline bool HasExt(const DecodedFrame& frame, roce::ExtHeader kind) {
  return (frame.ext_present & roce::OpcodeInfo::Bit(kind)) != 0;
}

// Where the packet stands in the captured frame.
struct PacketPlace {
  // Of the Ethernet header, if the packet follows on it and on its VLAN tags at once.
  std::optional<size_t> link_at;
  size_t at = 0;     // of its IP header, or GRH
  size_t bytes = 0;  // with that, as it says itself, true or not
  size_t end = 0;    // of what holds it, as far as it was captured
};

// Fills in the verdicts and what they depend on: malformed, icrc, reencoded, pad, the checksum.
void Verify(std::span<const std::byte> frame, const PacketPlace& place, DecodedFrame& out);

}  // namespace roci::tools
