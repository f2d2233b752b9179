// Fuzzes gate 1 for frames that flow rules may take: the layers of every key must be consistent.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "roce/flow_key.h"
#include "roce/toeplitz.h"
#include "tests/fuzz/fuzz.h"

namespace roci::roce {
namespace {

constexpr size_t kEthernetHeaderBytes = 14;

void CheckFrame(std::span<const std::byte> frame) {
  FlowKey key;
  const bool parsed = ParseFlowKey(frame, key);
  CHECK(parsed == (frame.size() >= kEthernetHeaderBytes));
  if (!parsed) return;
  const auto has = [&key](uint8_t layer) { return (key.layers & layer) != 0; };
  CHECK((key.layers & ~kFlowLayers) == 0);
  CHECK(!has(kFlowLayerIpv4) || !has(kFlowLayerIpv6));
  CHECK(!has(kFlowLayerTcp) || !has(kFlowLayerUdp));
  const bool has_ports = has(kFlowLayerTcp) || has(kFlowLayerUdp);
  CHECK(!has_ports || has(kFlowLayerIpv4) || has(kFlowLayerIpv6));
  CHECK(has_ports || (key.src_port == 0 && key.dst_port == 0));
  CHECK(has(kFlowLayerVlan) || key.vlan_tci == 0);
  CHECK(Equal(Masked(key, key), key));
  ToeplitzKey hash_key{};
  hash_key[0] = 1;
  const uint32_t hash = HashFlow(hash_key, kHashFields, key);
  CHECK(has(kFlowLayerIpv4) || has(kFlowLayerIpv6) || hash == 0);
}

}  // namespace
}  // namespace roci::roce

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of exact size, so that a sanitizer sees reads past the end.
  const std::vector<uint8_t> frame(data, data + size);
  roci::roce::CheckFrame(std::as_bytes(std::span(frame)));
  return 0;
}
