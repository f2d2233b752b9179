// Properties of a port that follow from its devargs and that DPDK does not report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "roce/headers.h"

namespace roci::dataplane {

// Ethernet header, one VLAN tag and FCS.
inline constexpr uint32_t kEthernetOverheadBytes = roce::kMaxLinkHeaderBytes + roce::kFcsBytes;

// Whether they name a PCI device: "0000:03:00.0" or "03:00.0", with or without ",key=value".
bool IsPciAddress(const std::string& devargs);

// DPDK's name of the port: "net_tap0,iface=x" is "net_tap0", "03:00.0" is "0000:03:00.0".
std::string PortName(const std::string& devargs);

// The argument `key` of the devargs, if it is there; its value as a number.
bool HasArgument(const std::string& devargs, std::string_view key);
uint32_t ArgumentOf(const std::string& devargs, std::string_view key, uint32_t otherwise);
// The network device of a port of packet sockets ("packet:eth0" or "packet:eth0,gso=0"); empty for
// other ports.
std::string PacketInterface(const std::string& devargs);
// Whether such a port joins frames (udp_gso.h): not with "gso=0".
bool JoinsFrames(const std::string& devargs);
// The devargs of DPDK's driver for packet sockets in the place of such a port; those of other ports
// unchanged.
std::string AsEthdev(const std::string& devargs);

// Adds missing arguments: for net_af_packet, ring frames (framesz) that hold `mtu` bytes behind the
// Ethernet header, as the default is 2 KiB; for net_pcap, the address of its network device
// (phy_mac), as the default is the same on every machine.
std::string WithDefaults(std::string devargs, uint32_t mtu);

// Whether the link returns sent frames (net_ring connects the port to itself).
bool LinkBringsBack(const std::string& devargs);

// Whether the address of the port is that of the kernel's end of the link (net_tap without a remote
// interface), so that the device needs another one.
bool AddressIsOfOtherEnd(const std::string& devargs);

// The largest MTU that fits the buffers of a net_memif, net_af_packet or net_af_xdp port, whatever
// the driver reports; no limit for net_pcap on a network device. Nothing for other ports.
std::optional<uint32_t> RoomOf(const std::string& devargs);

// Whether the port connects to its peer only when it starts (net_memif as the client).
bool ConnectsAtStart(const std::string& devargs);

// The path or abstract name of the socket on which a net_memif port listens; empty: none.
std::string MemifListenerOf(const std::string& devargs);

// The path of the socket on which the port listens; empty: none.
std::string ListeningSocketOf(const std::string& devargs);

// The network device of a net_pcap port; empty for other ports, where DPDK reports it.
std::string PcapInterface(const std::string& devargs);

// Size of a receive buffer (see FramePool) in bytes, if the port cannot use the usual size.
std::optional<uint16_t> BufferBytesOf(const std::string& devargs);

}  // namespace roci::dataplane
