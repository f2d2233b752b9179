// The largest dataplane and the largest frames. Control checks the configuration against these
// limits; the dataplane asserts them.
#pragma once

#include <cstdint>

#include "roce/types.h"

namespace roci::dataplane {

// An lcore's number is in the low bits of its QPNs (qp/qpn_space.h).
inline constexpr uint32_t kMaxLcores = 16;

// The largest MTU of a device: a frame buffer holds its frames, and the largest path MTU fits.
inline constexpr uint32_t kMaxMtuBytes = 4200;
static_assert(roce::PathMtuForEthernetMtu(kMaxMtuBytes) == roce::PathMtu::k4096);
// The MTU of Ethernet without jumbo frames (IEEE 802.3, 3.2.7).
inline constexpr uint32_t kStandardMtuBytes = 1500;

// Of a capture: the most bytes to which it shortens frames.
inline constexpr uint32_t kMaxSnapLengthBytes = 65535;

}  // namespace roci::dataplane
