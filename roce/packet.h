// The two typed packets: `Packet`, a received frame that passed gate 1, and `TxPacket`, a packet to
// be sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "roce/headers.h"
#include "roce/opcode.h"
#include "roce/types.h"

namespace roci::roce {

// A traffic class: DSCP above, explicit congestion notification (RFC 3168) in the lower bits.
inline constexpr uint8_t kEcnMask = 3;
inline constexpr unsigned kDscpShift = 2;
inline constexpr uint8_t kEcnCapable = 2;  // ECT(0)
inline constexpr uint8_t kEcnCongestionExperienced = 3;

// Values of all extension headers. Only the headers of the opcode's table entry are valid; the
// parser does not change the others.
struct ExtHeaders {
  Reth reth;
  AtomicEth atomic;
  Aeth aeth;
  AtomicAckEth atomic_ack;
  Deth deth;
  ImmDt imm;
  Ieth ieth;
  XrcEth xrc;
  Feth feth;
  MissingEth missing;
};

// A received packet. Its pointers point into the parsed frame and are valid as long as the frame.
// Reuse one object for many frames: constructing it costs more than parsing.
struct Packet {
  const OpcodeInfo* info = nullptr;  // never of a reserved opcode
  Opcode opcode{};
  bool solicited = false;
  bool ack_request = false;
  bool mig_req = false;
  bool fecn = false;
  bool becn = false;
  uint8_t pad_count = 0;
  bool has_vlan = false;
  uint16_t pkey = 0;
  uint16_t vlan_tci = 0;  // 0 without a tag
  uint16_t udp_src_port = 0;
  uint8_t traffic_class = 0;  // IPv4 TOS or IPv6 traffic class: DSCP << 2 | ECN
  uint8_t hop_limit = 0;      // IPv4 TTL or IPv6 hop limit
  uint32_t flow_label = 0;    // IPv6 only, else 0
  Psn psn;
  Qpn dest_qpn;
  Gid src_gid;  // both IPv4-mapped, or neither
  Gid dst_gid;
  Mac src_mac;
  Mac dst_mac;
  bool is_ipv6 = false;
  uint16_t network_bytes = 0;                 // from the IP header through the ICRC
  const std::byte* network_header = nullptr;  // the IP header
  std::span<const std::byte> payload;         // without pad
  ExtHeaders ext;

  uint8_t ecn() const { return traffic_class & kEcnMask; }
  uint8_t dscp() const { return traffic_class >> kDscpShift; }
  // 0: none. A tag with VLAN id 0 carries a priority only (IEEE 802.1Q, table 9-2).
  uint16_t vlan() const { return vlan_tci & VlanTag::kIdMask; }
};

inline constexpr uint32_t kGrhBytes = 40;

// Writes the first 40 bytes of a UD receive buffer: the IPv6 header, or 20 zero bytes and the IPv4
// header (IBTA vol 1, A17.4.5.1).
inline void StoreGrh(const Packet& packet, std::byte* out) {
  if (packet.is_ipv6) {
    std::memcpy(out, packet.network_header, kGrhBytes);
    return;
  }
  std::memset(out, 0, kGrhBytes - Ipv4Header::kBytes);
  std::memcpy(out + kGrhBytes - Ipv4Header::kBytes, packet.network_header, Ipv4Header::kBytes);
}

// A packet to be sent, without its payload, which the encoder (frame.h) takes as memory segments.
// The encoder computes pad count, lengths and ICRC; addresses, P_Key and MigReq are those of the
// FrameTemplate.
struct TxPacket {
  Opcode opcode{};
  bool solicited = false;
  bool ack_request = false;
  bool fecn = false;
  bool becn = false;
  Psn psn;
  Qpn dest_qpn;
  uint32_t payload_length = 0;  // bytes, 0..4096
  ExtHeaders ext;
};

}  // namespace roci::roce
