// What the ends tell each other while they connect: inline thresholds and remote invalidation
// (RFC 8797).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace rpcrdma {

inline constexpr size_t kPrivateDataBytes = 8;
// One byte counts KiB less one (RFC 8797, section 4.2).
inline constexpr size_t kMostInlineBytes = 256 * 1024;

struct PrivateData {
  // The sender's memory registrations may be invalidated by SEND with invalidate.
  bool remote_invalidation = false;
  // Longest inline message that the sender sends, and that it has receive buffers for. Multiples
  // of 1 KiB, 1 KiB to 256 KiB.
  size_t send_bytes = 1024;
  size_t receive_bytes = 1024;
  bool operator==(const PrivateData&) const = default;
};

// Values are rounded down to a multiple of 1 KiB and clamped.
std::array<std::byte, kPrivateDataBytes> EncodePrivateData(const PrivateData& data);

// Nothing if the peer sent none, or one of another format or version. librdmacm pads what it
// delivers, so more bytes may follow.
std::optional<PrivateData> DecodePrivateData(std::span<const std::byte> bytes);

}  // namespace rpcrdma
