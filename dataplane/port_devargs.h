// What the arguments of a port say about it, where DPDK itself does not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace roci::dataplane {

// Whether they name a PCI device: "0000:03:00.0" or "03:00.0", perhaps with ",key=value" behind.
bool IsPciAddress(const std::string& devargs);

// What DPDK calls the port: "net_tap0,iface=x" is "net_tap0", "03:00.0" is "0000:03:00.0".
std::string PortName(const std::string& devargs);

// `devargs` with what the port needs for frames of `mtu` bytes behind the Ethernet header: rings of
// net_af_packet have room for 2 KiB, unless the arguments themselves say how much (framesz).
std::string WithRoomFor(std::string devargs, uint32_t mtu);

// The largest MTU that a net_memif, net_af_packet or net_af_xdp port carries, whatever it reports:
// its buffers' and, of the latter, the network device's. Nothing for other ports.
std::optional<uint32_t> MtuOf(const std::string& devargs);

// Bytes of a buffer for receiving (see FramePool) where the port takes none of the usual size.
std::optional<uint16_t> BufferBytesOf(const std::string& devargs);

}  // namespace roci::dataplane
