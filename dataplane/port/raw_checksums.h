// The checksums of raw packets (IBV_SEND_IP_CSUM, IBV_WC_IP_CSUM_OK): an IPv4 header's, and that of
// TCP or UDP behind an IPv4 header or right behind an IPv6 header. Lengths in such frames are a
// program's or a stranger's: what does not fit into the frame is no such packet.
#pragma once

#include <cstdint>

struct rte_mbuf;

namespace roci::dataplane {

// Fills in the checksums of what the first `bytes` of a frame carry (the rest is padding); a frame
// that is no such packet stays as it is. Those of `offloads` (RTE_ETH_TX_OFFLOAD_*) are left to the
// port, which the mbuf then tells: true.
bool FillChecksums(rte_mbuf& frame, uint32_t bytes, uint64_t offloads);

// Fills in what was left to the port, which will not see the frame, or not as it is now.
void CompleteChecksums(rte_mbuf& frame);

// Whether both checksums of a received IPv4 packet are right, as mlx5 has it: no other frame, and
// no fragment, has any. The port's word is taken where it says so. A UDP checksum of 0 is none, and
// not wrong (RFC 768).
bool ChecksumsAreRight(const rte_mbuf& frame);

// The frame may not be any more what the port has looked at.
void ForgetChecksums(rte_mbuf& frame);

}  // namespace roci::dataplane
