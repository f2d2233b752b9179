// What the arguments of a port say about it, where DPDK itself does not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace roci::dataplane {

// Ethernet header, FCS and one VLAN tag.
inline constexpr uint32_t kEthernetOverheadBytes = 14 + 4 + 4;

// Whether they name a PCI device: "0000:03:00.0" or "03:00.0", perhaps with ",key=value" behind.
bool IsPciAddress(const std::string& devargs);

// What DPDK calls the port: "net_tap0,iface=x" is "net_tap0", "03:00.0" is "0000:03:00.0".
std::string PortName(const std::string& devargs);

// `devargs` with what the port needs and they do not say: room for frames of `mtu` bytes behind the
// Ethernet header in the rings of net_af_packet, which is 2 KiB otherwise (framesz), and for
// net_pcap the address of its network device, which is the same on every machine otherwise
// (phy_mac).
std::string WithDefaults(std::string devargs, uint32_t mtu);

// Whether the link brings back what is sent to it (net_ring): it joins the port with itself.
bool LinkBringsBack(const std::string& devargs);

// Whether the address that the port has is that of the kernel's end of the link (net_tap without a
// remote interface), so that the device needs another one.
bool AddressIsOfOtherEnd(const std::string& devargs);

// The largest MTU that fits the buffers of a net_memif, net_af_packet or net_af_xdp port, whatever
// it reports; net_pcap's have room for all, where it sends to a network device. Nothing for other
// ports.
std::optional<uint32_t> RoomOf(const std::string& devargs);

// Whether the port reaches its peer when it starts, and only then (net_memif as the client).
bool ConnectsAtStart(const std::string& devargs);

// The path or the abstract name of the socket that a net_memif port listens on; empty: none.
std::string MemifListenerOf(const std::string& devargs);

// The socket in the file system that the port listens on; empty: none.
std::string ListeningSocketOf(const std::string& devargs);

// The network device that a net_pcap port sends to; empty for other ports, of which DPDK knows it.
std::string PcapInterface(const std::string& devargs);

// Bytes of a buffer for receiving (see FramePool) where the port takes none of the usual size.
std::optional<uint16_t> BufferBytesOf(const std::string& devargs);

}  // namespace roci::dataplane
