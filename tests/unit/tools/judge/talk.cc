#include "tests/unit/tools/judge/talk.h"

#include <utility>

namespace roci::tools::judge {

Captured& Talk::Add(bool from_client, const roce::TxPacket& tx) {
  const auto client = is_ipv6_ ? roce::Gid{{0xFD, 1}} : roce::Gid::FromIpv4({{10, 0, 0, 1}});
  const auto server = is_ipv6_ ? roce::Gid{{0xFD, 2}} : roce::Gid::FromIpv4({{10, 0, 0, 2}});
  roce::Path path;
  path.src_gid = from_client ? client : server;
  path.dst_gid = from_client ? server : client;
  path.udp_src_port = 0xC123;
  path.traffic_class = ecn_;
  path.vlan_tci = vlan_;
  path.has_vlan = vlan_ != 0;
  const roce::FrameTemplate tmpl(path);
  const std::vector<std::byte> payload(tx.payload_length, std::byte{0x5A});
  Captured frame;
  frame.bytes.resize(roce::FrameBytes(tmpl, tx));
  roce::EncodeFrame(tmpl, tx, payload.data(), 0, frame.bytes.data());
  frame.original_length = static_cast<uint32_t>(frame.bytes.size());
  frame.time_ns = time_ns_ += 10'000;
  frames_.push_back(std::move(frame));
  return frames_.back();
}

std::vector<std::string> NamesIn(const Frames& frames) {
  Judge judge;
  JudgeAll(frames, judge);
  return NamesOf(judge);
}

}  // namespace roci::tools::judge
