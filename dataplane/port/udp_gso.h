// Joins RoCE frames of one flow into the long frame that the kernel's UDP segmentation offload
// (GSO) takes, and splits such frames again. Pure functions over bytes; received bytes are foreign.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "roce/headers.h"

namespace roci::dataplane {

// A GSO frame has the headers of its first segment, with the lengths of the whole, and behind them
// the UDP payloads of all segments: each with its BTH and its ICRC, all of one length but the last,
// which may be shorter. A VirtioNetHeader precedes the frame at a packet socket with
// PACKET_VNET_HDR (packet(7)). Where a device needs single frames, the kernel makes segments
// that differ from the first in their lengths, their checksums, and the IPv4 identification, which
// counts up. The ICRC covers all of these but the checksums.

// struct virtio_net_hdr of <linux/virtio_net.h>, which is no C++. In host byte order.
struct VirtioNetHeader {
  uint8_t flags = 0;
  uint8_t gso_type = 0;  // 0: an ordinary frame
  uint16_t hdr_len = 0;
  uint16_t gso_size = 0;  // UDP payload of a segment
  uint16_t csum_start = 0;
  uint16_t csum_offset = 0;
};
static_assert(sizeof(VirtioNetHeader) == 10);
inline constexpr uint8_t kNeedsChecksum = 1;  // VIRTIO_NET_HDR_F_NEEDS_CSUM, of `flags`
inline constexpr uint8_t kGsoUdp = 5;         // VIRTIO_NET_HDR_GSO_UDP_L4; since Linux 6.2
inline constexpr uint8_t kGsoEcn = 0x80;      // VIRTIO_NET_HDR_GSO_ECN, a bit of `gso_type`

// Some kernels do not hand longer frames to a device whole (netif_get_gso_max_size).
inline constexpr uint32_t kMaxGsoFrameBytes = 65'535;
// Of a frame that is sent; the kernel's limit for sockets (UDP_MAX_SEGMENTS) was 64 until 6.8.
inline constexpr uint32_t kMaxJoinedFrames = 64;
// Of a received frame.
inline constexpr uint32_t kMaxGsoSegments = 128;
// VLAN tag, IPv6.
inline constexpr uint32_t kMaxGsoHeaderBytes =
    roce::kMaxLinkHeaderBytes + roce::Ipv6Header::kBytes + roce::UdpHeader::kBytes;

// Frames that one GSO frame can replace.
class GsoRun {
 public:
  // `first` and the frames that follow must stay in place until WriteHeaders has returned.
  explicit GsoRun(std::span<const std::byte> first);
  // Adds the next frame to be sent. False: the run ends before it.
  bool Add(std::span<const std::byte> frame);

  uint32_t frames() const { return frames_; }
  // Bytes of each frame before its UDP payload. 0: the only frame is not of RoCE.
  uint32_t header_bytes() const { return header_bytes_; }
  // For two or more frames: writes header_bytes() bytes to `headers`; the payloads follow.
  void WriteHeaders(VirtioNetHeader& gso, std::byte* headers) const;

 private:
  bool MayFollow(std::span<const std::byte> frame) const;

  std::span<const std::byte> first_;
  uint32_t header_bytes_ = 0;
  uint32_t frames_ = 1;
  uint32_t bytes_;
  bool has_last_ = false;  // a shorter frame
};

// How a received frame is split.
struct GsoLayout {
  enum class Kind : uint8_t {
    kSingle,    // an ordinary frame, or none of RoCE: nothing to split
    kSegments,  // the rest is set
    kInvalid,   // lengths or checksum contradict each other, or it has too many segments
  };
  Kind kind = Kind::kSingle;
  uint32_t header_bytes = 0;  // before the payload of each segment
  uint32_t segment_bytes = 0;
  uint32_t last_bytes = 0;  // the same of the last segment
  uint32_t segments = 0;    // at least 2

  uint32_t BytesOf(uint32_t segment) const {
    return segment + 1 == segments ? last_bytes : segment_bytes;
  }
};
// `head`: the first kMaxGsoHeaderBytes of the frame, or the whole frame if it is shorter.
GsoLayout LayoutOf(const VirtioNetHeader& gso, std::span<const std::byte> head,
                   uint32_t frame_bytes);
// Writes the headers of a segment, layout.header_bytes bytes, to `out`, which may be `head`. The
// UDP checksum is 0: the kernel has not computed any, and the ICRC protects more.
void WriteSegmentHeaders(const GsoLayout& layout, std::span<const std::byte> head, uint32_t segment,
                         std::byte* out);

}  // namespace roci::dataplane
