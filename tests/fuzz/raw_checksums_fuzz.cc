// Fuzzes the checksums of raw packets. With any length fields: no access outside of the frame, at
// most two fields change, and the port's offload flags give the same result as software.
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <cstdint>
#include <vector>

#include "dataplane/port/raw_checksums.h"
#include "tests/fuzz/fuzz.h"

namespace {

using Bytes = std::vector<uint8_t>;

// A buffer of exact size, so that a sanitizer detects accesses past the end.
rte_mbuf Around(Bytes& bytes) {
  rte_mbuf frame{};
  frame.buf_addr = bytes.data();
  frame.buf_len = static_cast<uint16_t>(bytes.size());
  frame.data_len = static_cast<uint16_t>(bytes.size());
  frame.pkt_len = static_cast<uint32_t>(bytes.size());
  frame.nb_segs = 1;
  return frame;
}

size_t Differences(const Bytes& a, const Bytes& b) {
  size_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using roci::dataplane::ChecksumsAreRight;
  using roci::dataplane::CompleteChecksums;
  using roci::dataplane::FillChecksums;
  if (size < 2) return 0;
  const uint64_t offloads = ((data[0] & 1) != 0 ? RTE_ETH_TX_OFFLOAD_IPV4_CKSUM : 0) |
                            ((data[0] & 2) != 0 ? RTE_ETH_TX_OFFLOAD_UDP_CKSUM : 0) |
                            ((data[0] & 4) != 0 ? RTE_ETH_TX_OFFLOAD_TCP_CKSUM : 0);
  const Bytes original(data + 2, data + std::min<size_t>(size, 9000));
  const auto padding = std::min<size_t>(data[1], original.size());
  const auto bytes = static_cast<uint32_t>(original.size() - padding);

  Bytes software = original;
  rte_mbuf frame = Around(software);
  const bool was_right = ChecksumsAreRight(frame);
  CHECK(!FillChecksums(frame, bytes, 0));
  CHECK(frame.ol_flags == 0);
  CHECK(Differences(original, software) <= 4);
  CHECK(!was_right || padding != 0 || ChecksumsAreRight(frame));
  const Bytes once = software;
  FillChecksums(frame, bytes, 0);
  CHECK(software == once);

  Bytes left = original;
  rte_mbuf told = Around(left);
  const bool is_left = FillChecksums(told, bytes, offloads);
  CHECK(is_left == (told.ol_flags != 0));
  CHECK(Differences(original, left) <= 4);
  const auto headers = static_cast<uint32_t>(told.l2_len + told.l3_len + told.l4_len);
  CHECK(!is_left || headers <= bytes);
  CompleteChecksums(told);
  CHECK(told.ol_flags == 0);
  CHECK(left == once);
  return 0;
}
