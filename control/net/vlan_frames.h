// Parses and adds VLAN tags of control-plane frames. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "control/net/addresses.h"
#include "control/net/neighbour_frames.h"
#include "roce/headers.h"

namespace roci::control {

// Parsed Ethernet header and VLAN tag of a frame. A second tag stays in the payload; its EtherType
// is unknown to all callers.
struct LinkHeader {
  roce::EthernetHeader ethernet;  // with the type of the payload
  uint16_t vlan = 0;              // 0: untagged or priority-tagged
  std::span<const std::byte> payload;
};
// False: the frame is truncated.
bool ParseLinkHeader(std::span<const std::byte> frame, LinkHeader& out);

// Adds a tag for `vlan` (0: none) to an untagged frame, with the priority of type of service 0.
Frame InVlan(Frame frame, const AddressTable& addresses, uint16_t vlan);

}  // namespace roci::control
