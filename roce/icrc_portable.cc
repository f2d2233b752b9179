// The portable kernel: ISA-L, which chooses among C, PCLMULQDQ and wider code itself.
#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

#include "roce/icrc_kernels.h"

namespace roci::roce::internal {
namespace {

// ISA-L complements the state before and after, as zlib does.
CrcState Update(CrcState state, const std::byte* data, size_t length) {
  return ~crc32_gzip_refl(~state, reinterpret_cast<const unsigned char*>(data), length);
}

CrcState CopyUpdate(CrcState state, std::byte* dst, const std::byte* src, size_t length) {
  if (length == 0) return state;
  std::memcpy(dst, src, length);
  return Update(state, dst, length);
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
  std::byte* dst = network + header_length;
  if (payload_length != 0) std::memcpy(dst, payload, payload_length);
  std::memset(dst + payload_length, 0, pad);
  return Masked(network, header_length + payload_length + pad, is_ipv6);
}

}  // namespace

const CrcKernel kPortableKernel = {"isa-l", Update, CopyUpdate, Masked, MaskedCopy};

}  // namespace roci::roce::internal
