// The Toeplitz hash by which receive side scaling spreads flows (the "RSS hashing" of NDIS), over
// fields of a FlowKey. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "roce/flow_key.h"

namespace roci::roce {

inline constexpr size_t kToeplitzKeyBytes = 40;
using ToeplitzKey = std::array<uint8_t, kToeplitzKeyBytes>;

// Of at most kToeplitzKeyBytes - 4 bytes.
uint32_t Toeplitz(const ToeplitzKey& key, std::span<const uint8_t> bytes);

// Which fields count; values are those of enum ibv_rx_hash_fields.
inline constexpr uint32_t kHashSrcIpv4 = 1 << 0;
inline constexpr uint32_t kHashDstIpv4 = 1 << 1;
inline constexpr uint32_t kHashSrcIpv6 = 1 << 2;
inline constexpr uint32_t kHashDstIpv6 = 1 << 3;
inline constexpr uint32_t kHashSrcPortTcp = 1 << 4;
inline constexpr uint32_t kHashDstPortTcp = 1 << 5;
inline constexpr uint32_t kHashSrcPortUdp = 1 << 6;
inline constexpr uint32_t kHashDstPortUdp = 1 << 7;
inline constexpr uint32_t kHashFields = (1 << 8) - 1;

// Source before destination, addresses before ports. Fields of layers that the frame has not count
// for nothing; a frame with none of them hashes to 0.
uint32_t HashFlow(const ToeplitzKey& key, uint32_t fields, const FlowKey& flow);

}  // namespace roci::roce
