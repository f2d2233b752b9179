// ECN marking of a frame (CE), as by a switch with a long queue, if the packet is ECN capable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "roce/headers.h"
#include "roce/packet.h"

namespace roci::sim {

// Expects no VLAN tag, which frames of the simulator never have. False: the frame is not ECN
// capable (RFC 3168, section 5).
inline bool MarkFrame(std::vector<std::byte>& frame) {
  std::byte* ip = frame.data() + roce::EthernetHeader::kBytes;
  const bool is_ipv6 = std::to_integer<uint8_t>(ip[0]) >> 4 == 6;
  const unsigned shift = is_ipv6 ? 4 : 0;  // the traffic class of IPv6 spans two bytes
  const unsigned ecn = (std::to_integer<unsigned>(ip[1]) >> shift) & roce::kEcnMask;
  if (ecn != roce::kEcnCapable) return false;
  ip[1] |= static_cast<std::byte>(roce::kEcnCongestionExperienced << shift);
  if (is_ipv6) return true;
  std::memset(ip + 10, 0, 2);
  const auto checksum = static_cast<uint16_t>(~roce::Ipv4HeaderSum(ip));
  std::memcpy(ip + 10, &checksum, sizeof(checksum));
  return true;
}

}  // namespace roci::sim
