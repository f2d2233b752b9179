#include "control/net/vlan_frames.h"

#include <array>

namespace roci::control {

bool ParseLinkHeader(std::span<const std::byte> frame, LinkHeader& out) {
  if (frame.size() < roce::EthernetHeader::kBytes) return false;
  out.ethernet = roce::EthernetHeader::Load(frame.data());
  out.vlan = 0;
  out.payload = frame.subspan(roce::EthernetHeader::kBytes);
  if (out.ethernet.ether_type != roce::kEtherTypeVlan) return true;
  if (out.payload.size() < roce::VlanTag::kBytes) return false;
  const roce::VlanTag tag = roce::VlanTag::Load(out.payload.data());
  out.ethernet.ether_type = tag.ether_type;
  out.vlan = tag.tci & roce::VlanTag::kIdMask;
  out.payload = out.payload.subspan(roce::VlanTag::kBytes);
  return true;
}

Frame InVlan(Frame frame, const AddressTable& addresses, uint16_t vlan) {
  if (vlan == 0) return frame;
  constexpr size_t kTypeAt = 12;
  const uint32_t priority = addresses.PriorityIn(vlan, 0);
  std::array<std::byte, roce::VlanTag::kBytes> tag;
  roce::StoreBe<uint16_t>(tag.data(), roce::kEtherTypeVlan);
  roce::StoreBe<uint16_t>(tag.data() + 2,
                          static_cast<uint16_t>(vlan | priority << roce::VlanTag::kPriorityShift));
  frame.insert(frame.begin() + kTypeAt, tag.begin(), tag.end());
  return frame;
}

}  // namespace roci::control
