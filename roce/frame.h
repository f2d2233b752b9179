// The frame encoder: builds an Ethernet frame from a TxPacket and a path. The functions are pure; a
// FrameTemplate that no thread modifies may be shared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "roce/icrc.h"
#include "roce/packet.h"
#include "roce/types.h"

namespace roci::roce {

// A resolved address vector. Either both GIDs are IPv4-mapped (IPv4 packets) or neither.
struct Path {
  Mac src_mac;
  Mac dst_mac;
  bool has_vlan = false;
  uint16_t vlan_tci = 0;  // with has_vlan only
  Gid src_gid;
  Gid dst_gid;
  uint8_t hop_limit = kDefaultHopLimit;
  uint8_t traffic_class = 0;  // IPv4 TOS or IPv6 traffic class: DSCP << 2 | ECN
  uint32_t flow_label = 0;    // 20 bits, IPv6 only
  uint16_t udp_src_port = 0;  // constant per QP; see UdpSourcePort
  uint16_t pkey = kDefaultPkey;
  bool mig_req = true;  // BTH.MigReq, the Migrated state

  uint16_t vlan() const { return has_vlan ? vlan_tci & VlanTag::kIdMask : 0; }  // 0: none
};

// The UDP source port for a pair of QPs: 0xC000 | 14 bits of entropy for ECMP (IBTA vol 1,
// A17.4.3). A non-zero flow label alone determines it, as in rdma_flow_label_to_udp_sport().
uint16_t UdpSourcePort(uint32_t flow_label, Qpn local, Qpn remote);
// The same for an address handle, which has no queue pair numbers: without a flow label the
// addresses give the entropy.
uint16_t UdpSourcePort(uint32_t flow_label, const Gid& local, const Gid& remote);

// The header bytes that all packets of a QP (or of a UD address handle) share: Ethernet, IP, UDP
// and the constant parts of the BTH.
class FrameTemplate {
 public:
  FrameTemplate() = default;
  explicit FrameTemplate(const Path& path);

  // UD: the address handle gives the template, the sending QP its P_Key.
  void set_pkey(uint16_t pkey);
  // The same path for CNPs, which have their own traffic class and are not ECN capable (IBTA vol 1,
  // A17.9.3).
  FrameTemplate ForNotifications(uint8_t dscp, uint8_t priority) const;

  bool is_ipv6() const { return is_ipv6_; }
  uint32_t network_offset() const { return network_offset_; }      // of the IP header in the frame
  uint32_t transport_offset() const { return transport_offset_; }  // of the BTH in the frame

  static constexpr uint32_t kCapacity = 80;  // at most 78 used: Ethernet, VLAN, IPv6, UDP, BTH
  const std::byte* bytes() const { return bytes_.data(); }
  // Sum of the IPv4 header's words in memory order, without total length, id and checksum.
  uint16_t ipv4_sum() const { return ipv4_sum_; }
  // First four bytes of the BTH as a number, without opcode, solicited and pad count.
  uint32_t bth_word() const { return bth_word_; }

 private:
  alignas(16) std::array<std::byte, kCapacity> bytes_{};
  uint32_t bth_word_ = 0;
  uint16_t ipv4_sum_ = 0;
  uint8_t network_offset_ = 0;
  uint8_t transport_offset_ = 0;
  bool is_ipv6_ = false;
};

// A part of the payload, in this process's memory.
struct PayloadPart {
  const std::byte* data = nullptr;
  uint32_t length = 0;
};

// The longest frame: VLAN, IPv6, the longest headers with a payload, 4096 bytes, ICRC.
inline constexpr size_t kMaxFrameBytes =
    kMaxLinkHeaderBytes + kMaxPacketOverhead + kMaxPathMtuBytes;

constexpr uint32_t PadCount(uint32_t payload_length) { return -payload_length & 3; }

// Length of the frame that EncodeFrame will write, without Ethernet padding to 60 bytes.
inline uint32_t FrameBytes(const FrameTemplate& tmpl, const TxPacket& packet) {
  return tmpl.transport_offset() + InfoOf(packet.opcode).header_bytes + packet.payload_length +
         PadCount(packet.payload_length) + kIcrcBytes;
}

// Writes a whole frame to `out` (of at least FrameBytes bytes) and returns its length. `payload`
// points to packet.payload_length bytes (may be null for 0). Each byte is read exactly once, in one
// pass of copy and CRC: a program that writes to it at the same time cannot make the ICRC wrong.
// `ip_id`: IPv4 identification; DF is set, so 0 is valid (RFC 6864).
uint32_t EncodeFrame(const FrameTemplate& tmpl, const TxPacket& packet, const std::byte* payload,
                     uint16_t ip_id, std::byte* out);

// The same for a payload in several parts, whose lengths add up to packet.payload_length.
uint32_t EncodeFrame(const FrameTemplate& tmpl, const TxPacket& packet,
                     std::span<const PayloadPart> payload, uint16_t ip_id, std::byte* out);

// For a payload that the caller writes into the frame (from another process, or in a batch of
// reads). StartFrame writes the headers and returns the place for packet.payload_length bytes;
// FinishFrame then appends pad and the ICRC of the bytes there and returns the frame's length. The
// payload may be written before StartFrame, which writes nothing at or after PayloadOffset.
inline uint32_t PayloadOffset(const FrameTemplate& tmpl, const TxPacket& packet) {
  return tmpl.transport_offset() + InfoOf(packet.opcode).header_bytes;
}
std::byte* StartFrame(const FrameTemplate& tmpl, const TxPacket& packet, uint16_t ip_id,
                      std::byte* out);
uint32_t FinishFrame(const FrameTemplate& tmpl, const TxPacket& packet, std::byte* out);
// FinishFrame without the template, which may have changed or been freed.
struct FrameShape {
  uint16_t network_offset;
  uint16_t payload_offset;
  uint16_t payload_length;  // bytes
  bool is_ipv6;
};
FrameShape ShapeOf(const FrameTemplate& tmpl, const TxPacket& packet);
uint32_t FinishFrame(const FrameShape& shape, std::byte* out);

}  // namespace roci::roce
