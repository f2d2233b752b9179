#include "tests/interop/rpcrdma/private_data.h"

#include <algorithm>

#include "tests/interop/rpcrdma/xdr_words.h"

namespace rpcrdma {
namespace {

// RFC 8797, section 4.
constexpr uint32_t kFormatIdentifier = 0xF6AB0E18;
constexpr std::byte kFormatVersion{1};
constexpr std::byte kRemoteInvalidation{1};
constexpr size_t kUnit = 1024;

std::byte EncodeSize(size_t bytes) {
  return static_cast<std::byte>(std::clamp(bytes, kUnit, kMostInlineBytes) / kUnit - 1);
}

size_t DecodeSize(std::byte value) { return (std::to_integer<size_t>(value) + 1) * kUnit; }

}  // namespace

std::array<std::byte, kPrivateDataBytes> EncodePrivateData(const PrivateData& data) {
  std::array<std::byte, kPrivateDataBytes> bytes = {};
  StoreWord(bytes.data(), kFormatIdentifier);
  bytes[4] = kFormatVersion;
  bytes[5] = data.remote_invalidation ? kRemoteInvalidation : std::byte{0};
  bytes[6] = EncodeSize(data.send_bytes);
  bytes[7] = EncodeSize(data.receive_bytes);
  return bytes;
}

std::optional<PrivateData> DecodePrivateData(std::span<const std::byte> bytes) {
  if (bytes.size() < kPrivateDataBytes || LoadWord(bytes.data()) != kFormatIdentifier ||
      bytes[4] != kFormatVersion) {
    return std::nullopt;
  }
  // Reserved flags are ignored (RFC 8797, section 4).
  return PrivateData{.remote_invalidation = (bytes[5] & kRemoteInvalidation) != std::byte{0},
                     .send_bytes = DecodeSize(bytes[6]),
                     .receive_bytes = DecodeSize(bytes[7])};
}

}  // namespace rpcrdma
