// Selects the frames of a capture or an impairment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/types/frame_filter.h"

namespace roci::dataplane {

// `frame` is a whole, unchecked Ethernet frame.
bool Matches(const FrameFilter& filter, std::span<const std::byte> frame);

// The frame from its BTH on; empty: no RoCEv2 packet with a whole BTH.
std::span<const std::byte> FromBth(std::span<const std::byte> frame);
// Whether the IP header says ECN: congestion experienced.
bool IsMarkedCe(std::span<const std::byte> frame);
// Matches for a RoCEv2 packet. `transport`: from FromBth, not empty.
bool MatchesPacket(const FrameFilter& filter, std::span<const std::byte> transport);

// Offset and version (4 or 6) of the IP header behind Ethernet and up to two VLAN tags. Version 0:
// another protocol, or too short for the IP header.
struct NetworkHeader {
  uint32_t offset = 0;
  uint8_t version = 0;
};
NetworkHeader FindNetworkHeader(std::span<const std::byte> frame);

}  // namespace roci::dataplane
