#include "tests/unit/roce/frames.h"

#include <zlib.h>

#include <random>

#include "tests/unit/roce/rng.h"

namespace roci::roce {
namespace {

uint16_t Get16(const Frame& f, size_t at) { return LoadBe<uint16_t>(f.data() + at); }

void FixIpv4Checksum(Frame& f, size_t header_bytes) {
  StoreBe<uint16_t>(f.data() + 24, 0);
  uint32_t sum = 0;
  for (size_t i = 0; i < header_bytes; i += 2) sum += Get16(f, 14 + i);
  while (sum > 0xFFFF) sum = (sum & 0xFFFF) + (sum >> 16);
  StoreBe<uint16_t>(f.data() + 24, static_cast<uint16_t>(~sum));
}

void FixIcrc(Frame& f, size_t network_bytes) {
  std::vector<uint8_t> masked(8, 0xFF);
  for (size_t i = 0; i < network_bytes - 4; ++i) {
    const bool mutable_field =
        i == 1 || i == 8 || i == 10 || i == 11 || i == 26 || i == 27 || i == 32;
    masked.push_back(mutable_field ? 0xFF : std::to_integer<uint8_t>(f[14 + i]));
  }
  const auto icrc = static_cast<uint32_t>(
      crc32(crc32(0, nullptr, 0), masked.data(), static_cast<uInt>(masked.size())));
  for (size_t i = 0; i < 4; ++i) {
    f[14 + network_bytes - 4 + i] = static_cast<std::byte>(icrc >> (8 * i));
  }
}

}  // namespace

TxPacket RandomTxPacket(Opcode opcode, uint32_t payload_length, uint32_t seed) {
  std::mt19937_64 random(seed);
  const OpcodeInfo& info = InfoOf(opcode);
  const auto r32 = [&random] { return static_cast<uint32_t>(random()); };
  TxPacket p;
  p.opcode = opcode;
  p.solicited = random() & 1;
  p.ack_request = random() & 1;
  p.fecn = random() & 1;
  p.becn = random() & 1;
  p.psn = Psn(r32());
  p.dest_qpn = Qpn(r32());
  p.payload_length = payload_length;
  using enum ExtHeader;
  if (info.Has(kReth)) p.ext.reth = {random(), Key(r32()), r32()};
  if (info.Has(kAtomicEth)) p.ext.atomic = {random(), Key(r32()), random(), random()};
  if (info.Has(kAeth)) p.ext.aeth = {static_cast<uint8_t>(random()), Msn(r32())};
  if (info.Has(kAtomicAckEth)) p.ext.atomic_ack = {random()};
  if (info.Has(kDeth)) p.ext.deth = {r32(), Qpn(r32())};
  if (info.Has(kImmDt)) p.ext.imm = {r32()};
  if (info.Has(kIeth)) p.ext.ieth = {Key(r32())};
  if (info.Has(kXrcEth)) p.ext.xrc = {r32() & kMask24};
  if (info.Has(kMissing)) p.ext.missing.words = {random(), random(), random(), random()};
  if (info.Has(kFeth)) p.ext.feth = {static_cast<uint8_t>(r32() & 0xF), static_cast<uint8_t>(1)};
  return p;
}

Path TestPath(bool ipv6, bool vlan) {
  Path path;
  path.src_mac = {{0x02, 0, 0, 0, 0, 1}};
  path.dst_mac = {{0x02, 0, 0, 0, 0, 2}};
  path.has_vlan = vlan;
  path.vlan_tci = 0x6064;
  path.src_gid = ipv6 ? Gid{{0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFE, 0, 0, 1}}
                      : Gid::FromIpv4({{10, 1, 2, 3}});
  path.dst_gid = ipv6 ? Gid{{0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFE, 0, 0, 2}}
                      : Gid::FromIpv4({{10, 1, 2, 4}});
  path.hop_limit = 63;
  path.traffic_class = 0x6A;
  path.flow_label = ipv6 ? 0x54321 : 0;
  path.udp_src_port = 0xD234;
  path.pkey = 0x8005;
  return path;
}

Frame MakeFrame(const Path& path, const TxPacket& packet, uint32_t seed) {
  Rng random(seed);
  Frame payload(packet.payload_length);
  for (std::byte& b : payload) b = static_cast<std::byte>(random());
  const FrameTemplate tmpl(path);
  Frame frame(FrameBytes(tmpl, packet));
  frame.resize(
      EncodeFrame(tmpl, packet, payload.data(), static_cast<uint16_t>(random()), frame.data()));
  return frame;
}

void FixChecksums(Frame& f) {
  if (f.size() < 14 + 20 || Get16(f, 12) != 0x0800) return;
  const size_t header_bytes = (std::to_integer<size_t>(f[14]) & 15) * 4;
  const size_t network_bytes = Get16(f, 16);
  if (header_bytes < 20 || f.size() < 14 + header_bytes) return;
  FixIpv4Checksum(f, header_bytes);
  if (network_bytes >= 20 + 8 + 4 && 14 + network_bytes <= f.size()) FixIcrc(f, network_bytes);
}

}  // namespace roci::roce
