// VLAN tags of frames that the control plane reads and writes. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "control/net/addresses.h"
#include "control/net/neighbour_frames.h"
#include "roce/headers.h"

namespace roci::control {

// A frame behind its Ethernet header and tag. Stacked tags are left in the payload: no EtherType
// that anybody here knows.
struct LinkHeader {
  roce::EthernetHeader ethernet;  // with the type of the payload
  uint16_t vlan = 0;              // 0: none, or a priority only
  std::span<const std::byte> payload;
};
// False: cut short.
bool ParseLinkHeader(std::span<const std::byte> frame, LinkHeader& out);

// `frame`, which has no tag, as it goes out in `vlan`, with the priority that packets without a
// type of service have.
Frame InVlan(Frame frame, const AddressTable& addresses, uint16_t vlan);

}  // namespace roci::control
