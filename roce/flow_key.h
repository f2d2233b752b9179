// The header fields that flow rules match, for an Ethernet frame that belongs to no queue pair.
// Each field has a fixed place, so that a rule is a mask and a value. Pure.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "roce/types.h"

namespace roci::roce {

// Layers found in the frame; a rule names the layers that it requires.
inline constexpr uint8_t kFlowLayerVlan = 1 << 0;
inline constexpr uint8_t kFlowLayerIpv4 = 1 << 1;
inline constexpr uint8_t kFlowLayerIpv6 = 1 << 2;
inline constexpr uint8_t kFlowLayerTcp = 1 << 3;
inline constexpr uint8_t kFlowLayerUdp = 1 << 4;
inline constexpr uint8_t kFlowLayers = (1 << 5) - 1;

// Bits of FlowKey::ip_flags, as in the kernel's flow rules.
inline constexpr uint8_t kFlowDontFragment = 0x2;
inline constexpr uint8_t kFlowMoreFragments = 0x4;

// Numbers are in network byte order. Fields of an absent layer are 0. With a VLAN tag, `ether_type`
// is the inner type. An IPv4 address takes the first 4 bytes of its array.
struct FlowKey {
  Mac dst_mac;
  Mac src_mac;
  uint16_t ether_type;
  uint16_t vlan_tci;
  std::array<uint8_t, 16> src_ip;
  std::array<uint8_t, 16> dst_ip;
  uint32_t flow_label;  // IPv6, 20 bits
  uint8_t protocol;     // IPv4 protocol, IPv6 next header
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint8_t ip_flags;   // IPv4
  uint16_t src_port;  // TCP and UDP; 0 in later fragments
  uint16_t dst_port;
  uint8_t layers;
  uint8_t reserved[3];

  static constexpr size_t kWords = 8;
  using Words = std::array<uint64_t, kWords>;
  Words words() const { return std::bit_cast<Words>(*this); }
};
static_assert(sizeof(FlowKey) == sizeof(FlowKey::Words));

// `key` & `mask`.
inline FlowKey Masked(const FlowKey& key, const FlowKey& mask) {
  FlowKey::Words words = key.words();
  const FlowKey::Words bits = mask.words();
  for (size_t i = 0; i < words.size(); ++i) words[i] &= bits[i];
  return std::bit_cast<FlowKey>(words);
}
inline bool Equal(const FlowKey& a, const FlowKey& b) { return a.words() == b.words(); }

// Gate 1 for frames that flow rules may take. Reads only bytes of `frame` and a fixed number of
// headers (one VLAN tag, one IP header, one TCP or UDP header). A truncated or malformed header
// counts as an absent layer. Length fields larger than the frame are tolerated, as in hardware.
// False: shorter than an Ethernet header.
bool ParseFlowKey(std::span<const std::byte> frame, FlowKey& out);

}  // namespace roci::roce
