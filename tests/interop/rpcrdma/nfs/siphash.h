// SipHash-2-4: a keyed hash that cannot be made without the key (Aumasson and Bernstein, 2012).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rpcrdma {

using SipKey = std::array<std::byte, 16>;

uint64_t SipHash(const SipKey& key, std::span<const std::byte> bytes);

}  // namespace rpcrdma
