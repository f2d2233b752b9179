#include "roce/toeplitz.h"

#include <cassert>
#include <cstring>

namespace roci::roce {
namespace {

// The bytes to be hashed, in order.
class HashInput {
 public:
  void Add(bool wanted, const void* field, size_t bytes) {
    if (!wanted) return;
    std::memcpy(bytes_.data() + size_, field, bytes);
    size_ += bytes;
  }
  std::span<const uint8_t> bytes() const { return std::span(bytes_).first(size_); }

 private:
  std::array<uint8_t, kToeplitzKeyBytes - 4> bytes_{};
  size_t size_ = 0;
};

}  // namespace

uint32_t Toeplitz(const ToeplitzKey& key, std::span<const uint8_t> bytes) {
  assert(bytes.size() <= kToeplitzKeyBytes - 4);
  uint64_t window = 0;  // the upper 32 bits are the key's bits that belong to the next input bit
  for (size_t i = 0; i < 8; ++i) window = window << 8 | key[i];
  uint32_t hash = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (uint32_t bit = 0x80; bit != 0; bit >>= 1) {
      if ((bytes[i] & bit) != 0) hash ^= static_cast<uint32_t>(window >> 32);
      window <<= 1;
    }
    if (i + 8 < key.size()) window |= key[i + 8];
  }
  return hash;
}

uint32_t HashFlow(const ToeplitzKey& key, uint32_t fields, const FlowKey& flow) {
  const auto wants = [&](uint32_t field, uint8_t layer) {
    return (fields & field) != 0 && (flow.layers & layer) != 0;
  };
  HashInput input;
  input.Add(wants(kHashSrcIpv4, kFlowLayerIpv4), flow.src_ip.data(), 4);
  input.Add(wants(kHashSrcIpv6, kFlowLayerIpv6), flow.src_ip.data(), 16);
  input.Add(wants(kHashDstIpv4, kFlowLayerIpv4), flow.dst_ip.data(), 4);
  input.Add(wants(kHashDstIpv6, kFlowLayerIpv6), flow.dst_ip.data(), 16);
  const bool src_port =
      wants(kHashSrcPortTcp, kFlowLayerTcp) || wants(kHashSrcPortUdp, kFlowLayerUdp);
  const bool dst_port =
      wants(kHashDstPortTcp, kFlowLayerTcp) || wants(kHashDstPortUdp, kFlowLayerUdp);
  input.Add(src_port, &flow.src_port, 2);
  input.Add(dst_port, &flow.dst_port, 2);
  return Toeplitz(key, input.bytes());
}

}  // namespace roci::roce
