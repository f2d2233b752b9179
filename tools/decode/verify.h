// Verifies a RoCE packet of a capture with the code of the dataplane: gate 1, the ICRC, and whether
// encoding the parsed packet gives the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tools/decode/dissect.h"

namespace roci::tools {

// Number of defined bits of a FETH; the others are DecodedFrame::feth_reserved.
inline constexpr unsigned kFethBits = 6;

inline bool HasExt(const DecodedFrame& frame, roce::ExtHeader kind) {
  return (frame.ext_present & roce::OpcodeInfo::Bit(kind)) != 0;
}

// Place of the packet in the captured frame.
struct PacketPlace {
  // Offset of the Ethernet header, if the packet directly follows it and its VLAN tags.
  std::optional<size_t> link_at;
  size_t at = 0;     // offset of its IP header or GRH
  size_t bytes = 0;  // length including that header, as stated in it (not checked)
  size_t end = 0;    // end of the captured bytes of the enclosing header
};

// Sets the verdicts and their details: malformed, icrc, reencoded, pad, the checksum.
void Verify(std::span<const std::byte> frame, const PacketPlace& place, DecodedFrame& out);

}  // namespace roci::tools
