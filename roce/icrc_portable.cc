// The portable kernel: slicing by 16. Sixteen tables carry sixteen bytes at a time through the
// register, one table for each distance to the end of the slice.
#include <algorithm>
#include <bit>
#include <cstring>

#include "roce/icrc_kernels.h"

namespace roci::roce::internal {
namespace {

constexpr size_t kSlice = 16;
constexpr uint32_t kPolynomial = 0xEDB88320;  // bit-reflected

// kTables[d][b]: the register after byte b and then d zero bytes, from a register of zeros.
using Tables = std::array<std::array<uint32_t, 256>, kSlice>;

constexpr Tables kTables = [] {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t v = byte;
    for (int bit = 0; bit < 8; ++bit) v = (v >> 1) ^ ((v & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = v;
  }
  for (size_t distance = 1; distance < kSlice; ++distance) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t v = tables[distance - 1][byte];
      tables[distance][byte] = (v >> 8) ^ tables[0][v & 0xFF];
    }
  }
  return tables;
}();

uint64_t LoadLe64(const std::byte* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof(v));
  if constexpr (std::endian::native == std::endian::big) v = __builtin_bswap64(v);
  return v;
}

// `dst` is null, and not used, without kCopy.
template <bool kCopy>
CrcState Append(CrcState state, std::byte* dst, const std::byte* src, size_t length) {
  const std::byte* const end = src + length;
  for (; end - src >= std::ptrdiff_t{kSlice}; src += kSlice) {
    const uint64_t first = LoadLe64(src) ^ state;
    const uint64_t second = LoadLe64(src + 8);
    if constexpr (kCopy) {
      std::memcpy(dst, src, kSlice);
      dst += kSlice;
    }
    state = 0;
    for (unsigned i = 0; i < 8; ++i) {
      state ^= kTables[15 - i][first >> (8 * i) & 0xFF] ^ kTables[7 - i][second >> (8 * i) & 0xFF];
    }
  }
  for (; src != end; ++src) {
    if constexpr (kCopy) *dst++ = *src;
    state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<uint32_t>(*src)) & 0xFF];
  }
  return state;
}

CrcState Update(CrcState state, const std::byte* data, size_t length) {
  return Append<false>(state, nullptr, data, length);
}

CrcState CopyUpdate(CrcState state, std::byte* dst, const std::byte* src, size_t length) {
  return Append<true>(state, dst, src, length);
}

CrcState Masked(const std::byte* network, size_t length, bool is_ipv6) {
  // All masked bytes lie in the first 64 of pseudo header and packet.
  std::array<std::byte, 64> block{};
  const size_t head = std::min(length, block.size() - kPseudoHeaderBytes);
  std::memcpy(block.data() + kPseudoHeaderBytes, network, head);
  const MaskTable& masks = is_ipv6 ? kMaskIpv6 : kMaskIpv4;
  for (size_t i = 0; i < block.size(); ++i) block[i] |= std::byte{masks[64 + i]};
  const CrcState state = Update(0, block.data(), kPseudoHeaderBytes + head);
  return Update(state, network + head, length - head);
}

CrcState MaskedCopy(std::byte* network, size_t header_length, bool is_ipv6,
                    const std::byte* payload, size_t payload_length, size_t pad) {
  std::byte* const dst = network + header_length;
  const CrcState state =
      CopyUpdate(Masked(network, header_length, is_ipv6), dst, payload, payload_length);
  std::memset(dst + payload_length, 0, pad);
  return Update(state, dst + payload_length, pad);
}

}  // namespace

const CrcKernel kPortableKernel = {"slicing-by-16", Update, CopyUpdate, Masked, MaskedCopy};

}  // namespace roci::roce::internal
