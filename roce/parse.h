// Gate 1: the bytes of a frame become a validated Packet, or a named reason why not.
#pragma once

#include <cstddef>
#include <span>

#include "roce/drop_reason.h"
#include "roce/packet.h"

namespace roci::roce {

// Parses one Ethernet frame (without its FCS; trailing Ethernet padding is allowed) and checks
// everything that can be checked without knowing a QP, the ICRC included. Answers kNone and fills
// in `out`, or answers why the frame is no RoCEv2 packet; `out` is then unspecified. kNotRoce means
// that the frame is something else altogether (ARP, ICMP, another UDP port) and may go to the
// control plane.
//
// What the QP has to check: that the transport fits, P_Key, addresses, and payload lengths against
// its path MTU, for which the IBTA wants a NAK rather than silence. The UDP checksum is not looked
// at, so that one of zero is taken over IPv6, too, as RFC 6935 and 6936 allow where something else
// covers the packet: the ICRC does (deviations.md).
DropReason ParsePacket(std::span<const std::byte> frame, Packet& out);

// ParsePacket in two steps, for a loop that wants to look up and prefetch a burst's QPs before it
// touches the payloads. A Packet is not validated until both have answered kNone.
DropReason ParseHeaders(std::span<const std::byte> frame, Packet& out);
// `packet` is from a ParseHeaders that answered kNone. Answers kNone or kIcrc.
DropReason CheckIcrc(const Packet& packet);

}  // namespace roci::roce
