#include "dataplane/port/udp_gso.h"

#include <algorithm>
#include <cassert>
#include <cstring>

namespace roci::dataplane {
namespace {

using roce::EthernetHeader;
using roce::Ipv4Header;
using roce::Ipv6Header;
using roce::LoadBe;
using roce::StoreBe;
using roce::UdpHeader;
using roce::VlanTag;

// Offsets from the IP header.
constexpr uint32_t kIpv4LengthAt = 2;
constexpr uint32_t kIpv4IdAt = 4;
constexpr uint32_t kIpv4FragmentAt = 6;
constexpr uint32_t kIpv4AddressesAt = 12;
constexpr uint32_t kIpv6LengthAt = 4;
constexpr uint32_t kIpv6NextHeaderAt = 6;
constexpr uint32_t kIpv6AddressesAt = 8;
// From the UDP header.
constexpr uint32_t kUdpLengthAt = 4;
constexpr uint32_t kUdpChecksumAt = 6;

// Where the headers of a RoCE frame are.
struct Shape {
  uint32_t network = 0;
  uint32_t udp = 0;
  uint32_t payload = 0;  // 0: not a RoCE frame
  bool is_ipv6 = false;
};

// Finds UDP to RoCE's port directly behind IPv4 without options, not fragmented, or IPv6.
Shape ShapeOf(std::span<const std::byte> head) {
  if (head.size() < EthernetHeader::kBytes + VlanTag::kBytes) return {};
  Shape shape{.network = EthernetHeader::kBytes};
  auto type = LoadBe<uint16_t>(head.data() + shape.network - 2);
  if (type == roce::kEtherTypeVlan) {
    shape.network += VlanTag::kBytes;
    type = LoadBe<uint16_t>(head.data() + shape.network - 2);
  }
  if (type != roce::kEtherTypeIpv4 && type != roce::kEtherTypeIpv6) return {};
  shape.is_ipv6 = type == roce::kEtherTypeIpv6;
  shape.udp = shape.network + (shape.is_ipv6 ? Ipv6Header::kBytes : Ipv4Header::kBytes);
  if (head.size() < shape.udp + UdpHeader::kBytes) return {};
  const std::byte* ip = head.data() + shape.network;
  if (shape.is_ipv6) {
    if (LoadBe<uint8_t>(ip) >> 4 != 6 ||
        LoadBe<uint8_t>(ip + kIpv6NextHeaderAt) != roce::kIpProtocolUdp) {
      return {};
    }
  } else {
    const Ipv4Header header = Ipv4Header::Load(ip);
    constexpr uint16_t kFragment = Ipv4Header::kMoreFragments | Ipv4Header::kOffsetMask;
    if (header.version_ihl != 0x45 || header.protocol != roce::kIpProtocolUdp ||
        (header.fragment & kFragment) != 0) {
      return {};
    }
  }
  if (LoadBe<uint16_t>(head.data() + shape.udp + 2) != roce::kRoceUdpPort) return {};
  shape.payload = shape.udp + UdpHeader::kBytes;
  return shape;
}

// Whether the lengths in the headers are those of the frame, so that it has no padding, and the
// IPv4 checksum is right.
bool IsSound(const Shape& shape, std::span<const std::byte> head, uint32_t frame_bytes) {
  const std::byte* ip = head.data() + shape.network;
  const uint32_t length = LoadBe<uint16_t>(ip + (shape.is_ipv6 ? kIpv6LengthAt : kIpv4LengthAt));
  const uint32_t end = length + (shape.is_ipv6 ? shape.udp : shape.network);
  if (end != frame_bytes || frame_bytes <= shape.payload) return false;
  if (LoadBe<uint16_t>(head.data() + shape.udp + kUdpLengthAt) != frame_bytes - shape.udp) {
    return false;
  }
  return shape.is_ipv6 || roce::Ipv4HeaderSum(ip) == 0xFFFF;
}

// Sets the lengths of a frame with `payload_bytes` of UDP, and its IPv4 checksum.
void StoreLengths(const Shape& shape, uint32_t payload_bytes, std::byte* headers) {
  const auto udp_bytes = static_cast<uint16_t>(UdpHeader::kBytes + payload_bytes);
  std::byte* ip = headers + shape.network;
  StoreBe<uint16_t>(headers + shape.udp + kUdpLengthAt, udp_bytes);
  if (shape.is_ipv6) {
    StoreBe<uint16_t>(ip + kIpv6LengthAt, udp_bytes);
    return;
  }
  StoreBe<uint16_t>(ip + kIpv4LengthAt, static_cast<uint16_t>(udp_bytes + Ipv4Header::kBytes));
  StoreBe<uint16_t>(ip + Ipv4Header::kChecksumOffset, 0);
  const auto checksum = static_cast<uint16_t>(~roce::Ipv4HeaderSum(ip));
  std::memcpy(ip + Ipv4Header::kChecksumOffset, &checksum, sizeof(checksum));
}

// The sum of UDP's pseudo header, not complemented, in memory order (RFC 768; RFC 8200, 8.1).
uint16_t PseudoHeaderSum(const Shape& shape, const std::byte* headers) {
  const std::byte* ip = headers + shape.network;
  const std::byte* addresses = ip + (shape.is_ipv6 ? kIpv6AddressesAt : kIpv4AddressesAt);
  const uint32_t bytes = shape.is_ipv6 ? 2 * 16 : 2 * 4;
  uint64_t sum = 0;
  for (uint32_t at = 0; at < bytes; at += 2) {
    uint16_t word;
    std::memcpy(&word, addresses + at, sizeof(word));
    sum += word;
  }
  std::byte rest[4];
  StoreBe<uint16_t>(rest, roce::kIpProtocolUdp);
  std::memcpy(rest + 2, headers + shape.udp + kUdpLengthAt, 2);
  uint16_t words[2];
  std::memcpy(words, rest, sizeof(words));
  return roce::FoldOnesComplement(sum + words[0] + words[1]);
}

uint16_t IdOf(const Shape& shape, const std::byte* headers) {
  return LoadBe<uint16_t>(headers + shape.network + kIpv4IdAt);
}

bool AreEqual(std::span<const std::byte> one, std::span<const std::byte> other, uint32_t from,
              uint32_t to) {
  return std::memcmp(one.data() + from, other.data() + from, to - from) == 0;
}

// Whether the kernel would give both frames the same headers, besides lengths, identification and
// checksums.
bool AreOfOneFlow(const Shape& shape, std::span<const std::byte> one,
                  std::span<const std::byte> other) {
  const uint32_t ip = shape.network;
  const uint32_t ports_end = shape.udp + kUdpLengthAt;
  if (shape.is_ipv6) {
    return AreEqual(one, other, 0, ip + kIpv6LengthAt) &&
           AreEqual(one, other, ip + kIpv6NextHeaderAt, ports_end);
  }
  return AreEqual(one, other, 0, ip + kIpv4LengthAt) &&
         AreEqual(one, other, ip + kIpv4FragmentAt, ip + Ipv4Header::kChecksumOffset) &&
         AreEqual(one, other, ip + kIpv4AddressesAt, ports_end);
}

bool HasUdpChecksum(const Shape& shape, std::span<const std::byte> frame) {
  return LoadBe<uint16_t>(frame.data() + shape.udp + kUdpChecksumAt) != 0;
}

}  // namespace

GsoRun::GsoRun(std::span<const std::byte> first)
    : first_(first), bytes_(static_cast<uint32_t>(first.size())) {
  const Shape shape = ShapeOf(first);
  if (shape.payload == 0 || !IsSound(shape, first, bytes_) || HasUdpChecksum(shape, first)) return;
  header_bytes_ = shape.payload;
}

bool GsoRun::MayFollow(std::span<const std::byte> frame) const {
  if (header_bytes_ == 0 || has_last_ || frames_ == kMaxJoinedFrames) return false;
  if (frame.size() > first_.size() || frame.size() <= header_bytes_) return false;
  return bytes_ + frame.size() - header_bytes_ <= kMaxGsoFrameBytes;
}

bool GsoRun::Add(std::span<const std::byte> frame) {
  if (!MayFollow(frame)) return false;
  const Shape shape = ShapeOf(first_);
  if (!AreOfOneFlow(shape, first_, frame) || HasUdpChecksum(shape, frame) ||
      !IsSound(shape, frame, static_cast<uint32_t>(frame.size()))) {
    return false;
  }
  if (!shape.is_ipv6) {
    const auto next = static_cast<uint16_t>(IdOf(shape, first_.data()) + frames_);
    if (IdOf(shape, frame.data()) != next) return false;
  }
  ++frames_;
  bytes_ += static_cast<uint32_t>(frame.size()) - header_bytes_;
  has_last_ = frame.size() < first_.size();
  return true;
}

void GsoRun::WriteHeaders(VirtioNetHeader& gso, std::byte* headers) const {
  assert(frames_ > 1);
  const Shape shape = ShapeOf(first_);
  std::memcpy(headers, first_.data(), header_bytes_);
  StoreLengths(shape, bytes_ - header_bytes_, headers);
  // The kernel completes it, in each segment.
  const uint16_t sum = PseudoHeaderSum(shape, headers);
  std::memcpy(headers + shape.udp + kUdpChecksumAt, &sum, sizeof(sum));
  gso = {};
  gso.flags = kNeedsChecksum;
  gso.gso_type = kGsoUdp;
  gso.hdr_len = static_cast<uint16_t>(header_bytes_);
  gso.gso_size = static_cast<uint16_t>(first_.size() - header_bytes_);
  gso.csum_start = static_cast<uint16_t>(shape.udp);
  gso.csum_offset = kUdpChecksumAt;
}

GsoLayout LayoutOf(const VirtioNetHeader& gso, std::span<const std::byte> head,
                   uint32_t frame_bytes) {
  GsoLayout layout;
  if ((gso.gso_type & ~kGsoEcn) != kGsoUdp) return layout;
  const Shape shape = ShapeOf(head);
  if (shape.payload == 0) return layout;
  layout.kind = GsoLayout::Kind::kInvalid;
  if (!IsSound(shape, head, frame_bytes) || gso.gso_size == 0) return layout;
  const uint32_t payload = frame_bytes - shape.payload;
  layout.header_bytes = shape.payload;
  layout.segment_bytes = gso.gso_size;
  layout.segments = (payload + layout.segment_bytes - 1) / layout.segment_bytes;
  layout.last_bytes = payload - (layout.segments - 1) * layout.segment_bytes;
  if (layout.segments > kMaxGsoSegments) return layout;
  layout.kind = layout.segments > 1 ? GsoLayout::Kind::kSegments : GsoLayout::Kind::kSingle;
  return layout;
}

void WriteSegmentHeaders(const GsoLayout& layout, std::span<const std::byte> head, uint32_t segment,
                         std::byte* out) {
  const Shape shape = ShapeOf(head);
  assert(shape.payload == layout.header_bytes);
  if (out != head.data()) std::memcpy(out, head.data(), layout.header_bytes);
  if (!shape.is_ipv6) {
    StoreBe<uint16_t>(out + shape.network + kIpv4IdAt,
                      static_cast<uint16_t>(IdOf(shape, out) + segment));
  }
  StoreLengths(shape, layout.BytesOf(segment), out);
  StoreBe<uint16_t>(out + shape.udp + kUdpChecksumAt, 0);
}

}  // namespace roci::dataplane
