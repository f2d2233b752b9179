// What the arguments of a virtual port say about the size of its frames, where DPDK itself does
// not.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace roci::dataplane {

// `devargs` with what the port needs for frames of `mtu` bytes behind the Ethernet header: rings of
// net_af_packet have room for 2 KiB, unless the arguments themselves say how much (framesz).
std::string WithRoomFor(std::string devargs, uint32_t mtu);

// The largest MTU that a net_memif or net_af_packet port carries, whatever it reports: its buffers'
// and, of net_af_packet, the network device's. Nothing for other ports.
std::optional<uint32_t> MtuOf(const std::string& devargs);

}  // namespace roci::dataplane
