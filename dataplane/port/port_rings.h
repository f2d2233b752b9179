// How many frames the receive rings of a port hold. A ring should hold what arrives while its lcore
// wakes up: up to 1 ms of the line rate.
#pragma once

#include <cstdint>
#include <string>

struct rte_eth_dev_info;

namespace roci::dataplane {

inline constexpr uint32_t kMinRxRing = 64;
inline constexpr uint32_t kMaxRxRing = 16384;

// Frames of `mtu` bytes that arrive in 1 ms at the highest speed of the NIC, at least 512, at most
// what the driver supports.
uint32_t AutomaticRxRing(const rte_eth_dev_info& info, uint32_t mtu);

// Why PortSettings::rx_ring cannot be set for a port; empty: it can. Rings of virtual ports are
// arguments of their drivers.
std::string FaultOfRxRing(const std::string& devargs);

// The devargs with the argument for rings of at least `frames`, unless it is there already.
std::string WithRxRing(std::string devargs, uint32_t frames);

// Frames in a receive ring of a virtual port, by its devargs and the driver's defaults; 0: unknown.
uint32_t RxRingOf(const std::string& devargs);

}  // namespace roci::dataplane
