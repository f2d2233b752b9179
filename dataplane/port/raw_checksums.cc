#define ALLOW_EXPERIMENTAL_API  // rte_ipv4_udptcp_cksum_verify
#include "dataplane/port/raw_checksums.h"

#include <netinet/in.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_net.h>
#include <rte_tcp.h>
#include <rte_udp.h>

#include <cstddef>
#include <cstring>
#include <optional>

namespace roci::dataplane {
namespace {

constexpr uint64_t kToPort =
    RTE_MBUF_F_TX_IP_CKSUM | RTE_MBUF_F_TX_L4_MASK | RTE_MBUF_F_TX_IPV4 | RTE_MBUF_F_TX_IPV6;
constexpr uint64_t kOfPort = RTE_MBUF_F_RX_IP_CKSUM_MASK | RTE_MBUF_F_RX_L4_CKSUM_MASK;

// A packet that lies within its frame.
struct IpPacket {
  uint32_t at = 0;      // offset of its header in the frame
  uint32_t header = 0;  // bytes, options included
  uint32_t bytes = 0;   // length of the packet
  bool is_ipv4 = false;
  uint8_t protocol = 0;  // TCP or UDP with a whole header; else 0
};

const rte_ipv4_hdr& Ipv4Of(const rte_mbuf& frame, const IpPacket& packet) {
  return *rte_pktmbuf_mtod_offset(&frame, const rte_ipv4_hdr*, packet.at);
}
const rte_ipv6_hdr& Ipv6Of(const rte_mbuf& frame, const IpPacket& packet) {
  return *rte_pktmbuf_mtod_offset(&frame, const rte_ipv6_hdr*, packet.at);
}
template <class Header>
Header& BehindIp(const rte_mbuf& frame, const IpPacket& packet) {
  return *rte_pktmbuf_mtod_offset(&frame, Header*, packet.at + packet.header);
}

// TCP or UDP, whose checksum covers addresses. 0: another protocol, a fragment, or a header or
// length that does not fit.
uint8_t ProtocolOf(const rte_mbuf& frame, const IpPacket& packet, uint32_t layer4) {
  const uint32_t carried = packet.bytes - packet.header;
  if (layer4 == RTE_PTYPE_L4_TCP) return carried >= sizeof(rte_tcp_hdr) ? IPPROTO_TCP : 0;
  if (layer4 != RTE_PTYPE_L4_UDP || carried < sizeof(rte_udp_hdr)) return 0;
  const auto& udp = BehindIp<const rte_udp_hdr>(frame, packet);
  return rte_be_to_cpu_16(udp.dgram_len) == carried ? IPPROTO_UDP : 0;
}

// Ignores transport headers behind IPv6 extension headers, as the address for the checksum may be
// in one of these (routing).
std::optional<IpPacket> FindPacket(const rte_mbuf& frame, uint32_t bytes) {
  rte_net_hdr_lens lengths{};
  const uint32_t kind = rte_net_get_ptype(
      &frame, &lengths, RTE_PTYPE_L2_MASK | RTE_PTYPE_L3_MASK | RTE_PTYPE_L4_MASK);
  IpPacket packet{.at = lengths.l2_len, .header = lengths.l3_len};
  if (packet.at + packet.header > bytes) return std::nullopt;
  switch (kind & RTE_PTYPE_L3_MASK) {
    case RTE_PTYPE_L3_IPV4:
    case RTE_PTYPE_L3_IPV4_EXT:
      packet.is_ipv4 = true;
      packet.bytes = rte_be_to_cpu_16(Ipv4Of(frame, packet).total_length);
      break;
    case RTE_PTYPE_L3_IPV6:
      packet.bytes = packet.header + rte_be_to_cpu_16(Ipv6Of(frame, packet).payload_len);
      break;
    default:
      return std::nullopt;
  }
  if (packet.bytes < packet.header || packet.at + packet.bytes > bytes) return std::nullopt;
  packet.protocol = ProtocolOf(frame, packet, kind & RTE_PTYPE_L4_MASK);
  return packet;
}

void FillIpv4(rte_mbuf& frame, const IpPacket& packet) {
  auto& ip = *rte_pktmbuf_mtod_offset(&frame, rte_ipv4_hdr*, packet.at);
  ip.hdr_checksum = 0;
  ip.hdr_checksum = rte_ipv4_cksum(&ip);
}

void FillTransport(rte_mbuf& frame, const IpPacket& packet) {
  auto* header = &BehindIp<std::byte>(frame, packet);
  std::byte* field = header + (packet.protocol == IPPROTO_TCP ? offsetof(rte_tcp_hdr, cksum)
                                                              : offsetof(rte_udp_hdr, dgram_cksum));
  uint16_t sum = 0;
  std::memcpy(field, &sum, sizeof(sum));
  sum = packet.is_ipv4 ? rte_ipv4_udptcp_cksum(&Ipv4Of(frame, packet), header)
                       : rte_ipv6_udptcp_cksum(&Ipv6Of(frame, packet), header);
  std::memcpy(field, &sum, sizeof(sum));
}

// The checksums that the port fills in, as flags of the mbuf.
uint64_t LeftToPort(const IpPacket& packet, uint64_t offloads) {
  uint64_t flags = 0;
  if (packet.is_ipv4 && (offloads & RTE_ETH_TX_OFFLOAD_IPV4_CKSUM) != 0) {
    flags |= RTE_MBUF_F_TX_IP_CKSUM;
  }
  if (packet.protocol == IPPROTO_TCP && (offloads & RTE_ETH_TX_OFFLOAD_TCP_CKSUM) != 0) {
    flags |= RTE_MBUF_F_TX_TCP_CKSUM;
  }
  if (packet.protocol == IPPROTO_UDP && (offloads & RTE_ETH_TX_OFFLOAD_UDP_CKSUM) != 0) {
    flags |= RTE_MBUF_F_TX_UDP_CKSUM;
  }
  if (flags == 0) return 0;
  return flags | (packet.is_ipv4 ? RTE_MBUF_F_TX_IPV4 : RTE_MBUF_F_TX_IPV6);
}

// Sets the offsets of the headers, and the sum over the addresses with which ports start.
void TellPort(rte_mbuf& frame, const IpPacket& packet, uint64_t flags) {
  const size_t layer4 = packet.protocol == IPPROTO_TCP   ? sizeof(rte_tcp_hdr)
                        : packet.protocol == IPPROTO_UDP ? sizeof(rte_udp_hdr)
                                                         : 0;
  frame.tx_offload = rte_mbuf_tx_offload(packet.at, packet.header, layer4, 0, 0, 0, 0);
  frame.ol_flags |= flags;
  rte_net_intel_cksum_prepare(&frame);
}

bool TransportIsRight(const rte_mbuf& frame, const IpPacket& packet) {
  if (packet.protocol == IPPROTO_UDP &&
      BehindIp<const rte_udp_hdr>(frame, packet).dgram_cksum == 0) {
    return true;
  }
  return rte_ipv4_udptcp_cksum_verify(&Ipv4Of(frame, packet),
                                      &BehindIp<const std::byte>(frame, packet)) == 0;
}

}  // namespace

bool FillChecksums(rte_mbuf& frame, uint32_t bytes, uint64_t offloads) {
  const std::optional<IpPacket> packet = FindPacket(frame, bytes);
  if (!packet.has_value()) return false;
  // Some ports sum up to the end of the frame instead of the packet.
  if (packet->at + packet->bytes != frame.data_len) offloads = 0;
  const uint64_t flags = LeftToPort(*packet, offloads);
  if (packet->is_ipv4 && (flags & RTE_MBUF_F_TX_IP_CKSUM) == 0) FillIpv4(frame, *packet);
  if (packet->protocol != 0 && (flags & RTE_MBUF_F_TX_L4_MASK) == 0) FillTransport(frame, *packet);
  if (flags != 0) TellPort(frame, *packet, flags);
  return flags != 0;
}

void CompleteChecksums(rte_mbuf& frame) {
  if ((frame.ol_flags & kToPort) == 0) return;
  frame.ol_flags &= ~kToPort;
  FillChecksums(frame, frame.data_len, 0);
}

bool ChecksumsAreRight(const rte_mbuf& frame) {
  const std::optional<IpPacket> packet = FindPacket(frame, frame.data_len);
  if (!packet.has_value() || !packet->is_ipv4 || packet->protocol == 0) return false;
  const bool header_is_good =
      (frame.ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_GOOD;
  const bool transport_is_good =
      (frame.ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD;
  return (header_is_good || rte_ipv4_cksum(&Ipv4Of(frame, *packet)) == 0) &&
         (transport_is_good || TransportIsRight(frame, *packet));
}

void ForgetChecksums(rte_mbuf& frame) { frame.ol_flags &= ~kOfPort; }

}  // namespace roci::dataplane
