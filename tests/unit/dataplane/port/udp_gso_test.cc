// Joining frames for UDP GSO, and splitting GSO frames: of our own, and hostile ones.
#include "dataplane/port/udp_gso.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "roce/frame.h"
#include "roce/parse.h"
#include "tests/unit/roce/rng.h"

namespace roci::testing {
namespace {

using dataplane::GsoLayout;
using dataplane::GsoRun;
using dataplane::kMaxGsoHeaderBytes;
using Frame = std::vector<std::byte>;
using Frames = std::vector<Frame>;
using Kind = GsoLayout::Kind;

// Other values of gso_type.
constexpr uint8_t kTcpv4 = 1;
constexpr uint8_t kFragmentedUdp = 3;

roce::Path PathOf(bool ipv6, bool vlan) {
  roce::Path path;
  path.src_mac = {{0x02, 1, 2, 3, 4, 5}};
  path.dst_mac = {{0x02, 1, 2, 3, 4, 6}};
  path.has_vlan = vlan;
  path.vlan_tci = 0x6123;
  path.src_gid = roce::Gid::FromIpv4({{10, 1, 2, 3}});
  path.dst_gid = roce::Gid::FromIpv4({{10, 200, 2, 4}});
  if (ipv6) {
    path.src_gid.bytes = {0x20, 0x01, 0x0d, 0xb8, 0xFF, 0xFE, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    path.dst_gid.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 2};
  }
  path.traffic_class = 0x6A;
  path.udp_src_port = 0xC123;
  return path;
}

Frame MakeFrame(const roce::Path& path, uint32_t psn, uint32_t payload_bytes,
                roce::Opcode opcode = roce::Opcode::kRcSendMiddle) {
  roce::TxPacket packet;
  packet.opcode = opcode;
  packet.psn = roce::Psn(psn & 0xFFFFFF);
  packet.dest_qpn = roce::Qpn(0x1234);
  packet.payload_length = payload_bytes;
  Frame payload(payload_bytes);
  for (uint32_t i = 0; i < payload_bytes; ++i) payload[i] = static_cast<std::byte>(i * 31 + psn);
  Frame frame(roce::kMaxFrameBytes);
  frame.resize(roce::EncodeFrame(roce::FrameTemplate(path), packet, payload.data(),
                                 static_cast<uint16_t>(psn), frame.data()));
  return frame;
}

struct GsoFrame {
  dataplane::VirtioNetHeader header{};
  Frame bytes;
};

// What the port gives to the kernel for the longest run at the start of `frames`.
GsoFrame Join(std::span<const Frame> frames) {
  GsoRun run(frames[0]);
  size_t count = 1;
  while (count < frames.size() && run.Add(frames[count])) ++count;
  EXPECT_EQ(run.frames(), count);
  GsoFrame out;
  if (count == 1) {
    out.bytes = frames[0];
    return out;
  }
  out.bytes.resize(run.header_bytes());
  run.WriteHeaders(out.header, out.bytes.data());
  for (size_t i = 0; i < count; ++i) {
    out.bytes.insert(out.bytes.end(), frames[i].begin() + run.header_bytes(), frames[i].end());
  }
  EXPECT_LE(out.bytes.size(), dataplane::kMaxGsoFrameBytes);
  return out;
}

GsoLayout Layout(const GsoFrame& frame) {
  const size_t head = std::min<size_t>(frame.bytes.size(), kMaxGsoHeaderBytes);
  return dataplane::LayoutOf(frame.header, std::span(frame.bytes).first(head),
                             static_cast<uint32_t>(frame.bytes.size()));
}

Frames Split(const GsoFrame& frame) {
  const GsoLayout layout = Layout(frame);
  if (layout.kind != Kind::kSegments) return {frame.bytes};
  Frames out;
  for (uint32_t i = 0; i < layout.segments; ++i) {
    Frame segment(layout.header_bytes);
    dataplane::WriteSegmentHeaders(layout, frame.bytes, i, segment.data());
    const auto begin = frame.bytes.begin() + layout.header_bytes + size_t{i} * layout.segment_bytes;
    segment.insert(segment.end(), begin, begin + layout.BytesOf(i));
    out.push_back(std::move(segment));
  }
  return out;
}

// The one's complement sum of big-endian words, as RFC 1071 defines it.
uint16_t SumOf(std::span<const std::byte> bytes, uint32_t sum = 0) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    sum += std::to_integer<uint32_t>(bytes[i]) << (i % 2 == 0 ? 8 : 0);
    sum = (sum & 0xFFFF) + (sum >> 16);
  }
  return static_cast<uint16_t>(sum);
}

// What Linux makes of a GSO frame where a device needs single frames (net/ipv4/udp_offload.c and
// inet_gso_segment()): written from its behaviour, not with the functions under test.
Frames SegmentAsLinux(const GsoFrame& frame) {
  const size_t udp = frame.header.csum_start;
  const size_t header = udp + 8;
  const bool ipv6 = udp >= 54;
  const size_t ip = udp - (ipv6 ? 40 : 20);
  Frames out;
  for (size_t at = header; at < frame.bytes.size(); at += frame.header.gso_size) {
    const size_t payload = std::min<size_t>(frame.header.gso_size, frame.bytes.size() - at);
    Frame segment(frame.bytes.begin(), frame.bytes.begin() + header);
    segment.insert(segment.end(), frame.bytes.begin() + at, frame.bytes.begin() + at + payload);
    const auto put = [&](size_t to, size_t value) {
      segment[to] = static_cast<std::byte>(value >> 8);
      segment[to + 1] = static_cast<std::byte>(value);
    };
    const auto get = [&](size_t from) {
      return std::to_integer<size_t>(segment[from]) << 8 |
             std::to_integer<size_t>(segment[from + 1]);
    };
    put(udp + 4, 8 + payload);
    // The checksum field of the GSO frame has the sum of its pseudo header: the length is
    // corrected.
    const size_t old_length = 8 + frame.bytes.size() - header;
    uint32_t pseudo = static_cast<uint32_t>(get(udp + 6) + (0xFFFF - old_length) + 8 + payload);
    put(udp + 6, 0);
    const uint16_t checksum =
        ~SumOf(std::span(segment).subspan(udp), (pseudo & 0xFFFF) + (pseudo >> 16));
    put(udp + 6, checksum == 0 ? 0xFFFF : checksum);
    if (ipv6) {
      put(ip + 4, 8 + payload);
    } else {
      put(ip + 2, 28 + payload);
      put(ip + 4, get(ip + 4) + out.size());
      put(ip + 10, 0);
      put(ip + 10, static_cast<uint16_t>(~SumOf(std::span(segment).subspan(ip, 20))));
    }
    out.push_back(std::move(segment));
  }
  return out;
}

// The UDP checksum is right, or there is none.
bool HasGoodUdpChecksum(const Frame& frame) {
  roce::Packet packet;
  if (roce::ParsePacket(frame, packet) != roce::DropReason::kNone) return false;
  const std::byte* ip = packet.network_header;
  const bool ipv6 = packet.is_ipv6;
  const std::span udp(ip + (ipv6 ? 40 : 20), packet.network_bytes - (ipv6 ? 40u : 20u));
  const std::span addresses(ip + (ipv6 ? 8 : 12), ipv6 ? 32u : 8u);
  return SumOf(udp, SumOf(addresses, static_cast<uint32_t>(17 + udp.size()))) == 0xFFFF;
}

class UdpGso : public ::testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  roce::Path path_ = PathOf(std::get<0>(GetParam()), std::get<1>(GetParam()));
  bool is_ipv6_ = std::get<0>(GetParam());
};

TEST_P(UdpGso, SplittingUndoesJoining) {
  roce::Rng random(1);
  uint32_t joined = 0;
  for (int round = 0; round < 120; ++round) {
    const uint32_t most = round % 2 == 0 ? 4096 : 1 + random() % 400;
    const uint32_t count = 1 + random() % 80;
    const uint32_t first_psn = random();
    Frames frames;
    for (uint32_t i = 0; i < count; ++i) {
      // Mostly full; short ones anywhere.
      const uint32_t bytes = random() % 20 == 0 || i + 1 == count ? random() % (most + 1) : most;
      frames.push_back(MakeFrame(path_, first_psn + i, bytes));
    }
    Frames split, segmented;
    for (std::span<const Frame> rest(frames); !rest.empty();) {
      const GsoFrame gso = Join(rest);
      const Frames parts = Split(gso);
      split.insert(split.end(), parts.begin(), parts.end());
      if (gso.header.gso_type == dataplane::kGsoUdp) {
        ++joined;
        for (const Frame& each : SegmentAsLinux(gso)) {
          EXPECT_TRUE(HasGoodUdpChecksum(each));
          segmented.push_back(each);
        }
      } else {
        segmented.push_back(gso.bytes);
      }
      rest = rest.subspan(parts.size());
    }
    ASSERT_EQ(split, frames);
    // The kernel's segments differ only in the UDP checksum, so the ICRC is right (checked above).
    ASSERT_EQ(segmented.size(), frames.size());
    const size_t checksum = 14 + (std::get<1>(GetParam()) ? 4 : 0) + (is_ipv6_ ? 40 : 20) + 6;
    for (size_t i = 0; i < frames.size(); ++i) {
      segmented[i][checksum] = segmented[i][checksum + 1] = std::byte{0};
      ASSERT_EQ(segmented[i], frames[i]) << i;
    }
  }
  EXPECT_GT(joined, 200u);
}

TEST_P(UdpGso, ARunHasOneFlowAndConsecutiveIdentifications) {
  const Frame first = MakeFrame(path_, 0xFFFF, 1024);
  const auto follows = [&](const Frame& next) { return GsoRun(first).Add(next); };
  EXPECT_TRUE(follows(MakeFrame(path_, 0x10000, 1024)));  // identification 0
  EXPECT_TRUE(follows(MakeFrame(path_, 0x10000, 4)));
  EXPECT_FALSE(follows(MakeFrame(path_, 0x10000, 1028)));
  // IPv6 has no identification.
  EXPECT_EQ(follows(MakeFrame(path_, 0x10001, 1024)), is_ipv6_);
  for (const auto& change :
       std::vector<void (*)(roce::Path&)>{[](roce::Path& path) { path.src_mac.bytes[5] ^= 1; },
                                          [](roce::Path& path) { path.dst_mac.bytes[5] ^= 1; },
                                          [](roce::Path& path) { path.src_gid.bytes[15] ^= 1; },
                                          [](roce::Path& path) { path.dst_gid.bytes[15] ^= 1; },
                                          [](roce::Path& path) { path.hop_limit = 63; },
                                          [](roce::Path& path) { path.traffic_class ^= 1; },
                                          [](roce::Path& path) { path.has_vlan = !path.has_vlan; },
                                          [](roce::Path& path) { path.udp_src_port ^= 1; }}) {
    roce::Path other = path_;
    change(other);
    EXPECT_FALSE(follows(MakeFrame(other, 0x10000, 1024)));
  }
  Frame with_checksum = MakeFrame(path_, 0x10000, 1024);
  with_checksum[GsoRun(with_checksum).header_bytes() - 1] = std::byte{1};
  EXPECT_FALSE(follows(with_checksum));
  GsoRun run(first);
  EXPECT_TRUE(run.Add(MakeFrame(path_, 0x10000, 1020)));
  EXPECT_FALSE(run.Add(MakeFrame(path_, 0x10001, 1020))) << "the shorter one was the last";
}

TEST_P(UdpGso, PaddedAndForeignFramesStayAlone) {
  // An acknowledgement is shorter than the least frame of Ethernet if there is no extension header.
  Frame padded = MakeFrame(path_, 1, 0, roce::Opcode::kRcSendOnly);
  padded.resize(padded.size() + 2);
  EXPECT_EQ(GsoRun(padded).header_bytes(), 0u);
  Frame next = MakeFrame(path_, 2, 0, roce::Opcode::kRcSendOnly);
  next.resize(next.size() + 2);
  EXPECT_FALSE(GsoRun(MakeFrame(path_, 1, 1024)).Add(next));
  Frame to_other_port = MakeFrame(path_, 1, 100);
  to_other_port[GsoRun(to_other_port).header_bytes() - 5] ^= std::byte{1};
  EXPECT_EQ(GsoRun(to_other_port).header_bytes(), 0u);
  EXPECT_EQ(GsoRun(Frame(60)).header_bytes(), 0u);
  EXPECT_EQ(GsoRun(Frame(5)).header_bytes(), 0u);
  EXPECT_EQ(GsoRun(Frame()).header_bytes(), 0u);
}

TEST_P(UdpGso, FramesThatContradictThemselvesAreInvalid) {
  Frames frames;
  for (uint32_t i = 0; i < 4; ++i) frames.push_back(MakeFrame(path_, i, 1000));
  const GsoFrame good = Join(frames);
  ASSERT_EQ(Layout(good).kind, Kind::kSegments);
  const auto kind_with = [&](auto change) {
    GsoFrame frame = good;
    change(frame);
    return Layout(frame).kind;
  };
  EXPECT_EQ(kind_with([](GsoFrame& frame) { frame.header.gso_size = 0; }), Kind::kInvalid);
  EXPECT_EQ(kind_with([](GsoFrame& frame) { frame.header.gso_size = 1; }), Kind::kInvalid);
  EXPECT_EQ(kind_with([](GsoFrame& frame) { frame.header.gso_size = 31; }), Kind::kInvalid);
  EXPECT_EQ(kind_with([](GsoFrame& frame) { frame.header.gso_size = 32; }), Kind::kSegments);
  EXPECT_EQ(kind_with([](GsoFrame& frame) { frame.header.gso_size = 65535; }), Kind::kSingle);
  EXPECT_EQ(kind_with([](GsoFrame& frame) { frame.bytes.pop_back(); }), Kind::kInvalid);
  EXPECT_EQ(kind_with([](GsoFrame& frame) { frame.bytes.push_back({}); }), Kind::kInvalid);
  const uint32_t header = Layout(good).header_bytes;
  EXPECT_EQ(kind_with([&](GsoFrame& frame) { frame.bytes.resize(header); }), Kind::kInvalid);
  EXPECT_EQ(kind_with([&](GsoFrame& frame) { frame.bytes.resize(header - 1); }), Kind::kSingle);
  EXPECT_EQ(kind_with([&](GsoFrame& frame) { frame.bytes[header - 3] ^= std::byte{1}; }),
            Kind::kInvalid)
      << "the UDP length";
  EXPECT_EQ(kind_with([&](GsoFrame& frame) { frame.bytes[header - 8 - 12] ^= std::byte{1}; }),
            is_ipv6_ ? Kind::kSegments : Kind::kInvalid)
      << "an address, and the IPv4 checksum";
  // Other kinds of GSO, and other protocols, are not split.
  EXPECT_EQ(kind_with([](GsoFrame& frame) { frame.header.gso_type = kTcpv4; }), Kind::kSingle);
  EXPECT_EQ(kind_with([](GsoFrame& frame) { frame.header.gso_type = kFragmentedUdp; }),
            Kind::kSingle);
  EXPECT_EQ(kind_with([&](GsoFrame& frame) { frame.bytes[header - 5] ^= std::byte{1}; }),
            Kind::kSingle)
      << "the UDP port";
  // Nobody needs the flags and offsets of the checksum.
  EXPECT_EQ(kind_with([](GsoFrame& frame) {
              frame.header.flags = 0;
              frame.header.csum_start = frame.header.csum_offset = frame.header.hdr_len = 0xFFFF;
            }),
            Kind::kSegments);
}

TEST_P(UdpGso, DamagedFramesAreSplitWithinTheirBounds) {
  roce::Rng random(7);
  Frames frames;
  for (uint32_t i = 0; i < 8; ++i) frames.push_back(MakeFrame(path_, i, 200));
  const GsoFrame good = Join(frames);
  for (int round = 0; round < 20000; ++round) {
    GsoFrame frame = good;
    if (random() % 2 == 0) frame.header.gso_size = static_cast<uint16_t>(random());
    if (random() % 4 == 0) frame.bytes.resize(random() % (frame.bytes.size() + 1));
    for (uint32_t changes = random() % 4; changes > 0 && !frame.bytes.empty(); --changes) {
      frame.bytes[random() % std::min<size_t>(frame.bytes.size(), 70)] = std::byte(random());
    }
    size_t bytes = 0;
    const GsoLayout layout = Layout(frame);
    if (layout.kind != Kind::kSegments) continue;
    ASSERT_LE(layout.segments, dataplane::kMaxGsoSegments);
    for (const Frame& segment : Split(frame)) bytes += segment.size() - layout.header_bytes;
    ASSERT_EQ(bytes, frame.bytes.size() - layout.header_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Headers, UdpGso, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& each) {
                           return std::string(std::get<0>(each.param) ? "Ipv6" : "Ipv4") +
                                  (std::get<1>(each.param) ? "Vlan" : "");
                         });

}  // namespace
}  // namespace roci::testing
