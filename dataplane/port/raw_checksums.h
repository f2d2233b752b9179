// Checksums of raw packets (IBV_SEND_IP_CSUM, IBV_WC_IP_CSUM_OK): of an IPv4 header, and of TCP or
// UDP directly behind an IPv4 or IPv6 header. Lengths in such frames are foreign input: a packet
// that does not fit its frame is ignored.
#pragma once

#include <cstdint>

struct rte_mbuf;

namespace roci::dataplane {

// Fills in the checksums of the packet in the first `bytes` of a frame (the rest is padding); other
// frames stay unchanged. Leaves those in `offloads` (RTE_ETH_TX_OFFLOAD_*) to the port and sets the
// flags of the mbuf: then returns true.
bool FillChecksums(rte_mbuf& frame, uint32_t bytes, uint64_t offloads);

// Fills in the checksums that were left to the port, if the port does not send this very frame.
void CompleteChecksums(rte_mbuf& frame);

// Whether both checksums of a received IPv4 packet are right, as in mlx5: false for other frames
// and for fragments. Takes the port's result if there is one. A UDP checksum of 0 means none (RFC
// 768).
bool ChecksumsAreRight(const rte_mbuf& frame);

// Drops the port's result, as the frame may have changed since.
void ForgetChecksums(rte_mbuf& frame);

}  // namespace roci::dataplane
