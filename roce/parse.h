// Gate 1: the bytes of a frame become a validated Packet, or a named reason why not.
#pragma once

#include <cstddef>
#include <span>

#include "roce/drop_reason.h"
#include "roce/packet.h"

namespace roci::roce {

// Parses one Ethernet frame (without FCS; Ethernet padding is allowed) and makes every check that
// needs no QP, the ICRC included. Returns kNone and fills `out`, or returns the reason to drop the
// frame and leaves `out` unspecified. kNotRoce: the frame has another protocol (ARP, ICMP, another
// UDP port) and may go to the control plane.
//
// The QP checks transport, P_Key, addresses, and payload lengths against its path MTU (the IBTA
// wants a NAK for these). The UDP checksum is not checked, so zero is accepted over IPv6 as well:
// the ICRC covers the packet (RFC 6935, RFC 6936; deviations.md).
DropReason ParsePacket(std::span<const std::byte> frame, Packet& out);

// ParsePacket in two steps: a loop can look up and prefetch the QPs of a burst before it reads the
// payloads. A Packet is validated when both have returned kNone.
DropReason ParseHeaders(std::span<const std::byte> frame, Packet& out);
// `packet` comes from a ParseHeaders that returned kNone. Returns kNone or kIcrc.
DropReason CheckIcrc(const Packet& packet);

}  // namespace roci::roce
