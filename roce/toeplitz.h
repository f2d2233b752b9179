// The Toeplitz hash of receive side scaling ("RSS hashing" of NDIS) over fields of a FlowKey. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "roce/flow_key.h"

namespace roci::roce {

inline constexpr size_t kToeplitzKeyBytes = 40;
using ToeplitzKey = std::array<uint8_t, kToeplitzKeyBytes>;

// At most kToeplitzKeyBytes - 4 bytes.
uint32_t Toeplitz(const ToeplitzKey& key, std::span<const uint8_t> bytes);

// Hashed fields; values are those of enum ibv_rx_hash_fields.
inline constexpr uint32_t kHashSrcIpv4 = 1 << 0;
inline constexpr uint32_t kHashDstIpv4 = 1 << 1;
inline constexpr uint32_t kHashSrcIpv6 = 1 << 2;
inline constexpr uint32_t kHashDstIpv6 = 1 << 3;
inline constexpr uint32_t kHashSrcPortTcp = 1 << 4;
inline constexpr uint32_t kHashDstPortTcp = 1 << 5;
inline constexpr uint32_t kHashSrcPortUdp = 1 << 6;
inline constexpr uint32_t kHashDstPortUdp = 1 << 7;
inline constexpr uint32_t kHashFields = (1 << 8) - 1;

// Order: source before destination, addresses before ports. Fields of absent layers are skipped; a
// frame with none of the fields hashes to 0.
uint32_t HashFlow(const ToeplitzKey& key, uint32_t fields, const FlowKey& flow);

}  // namespace roci::roce
