#include "control/cm/gsi.h"

namespace roci::control::cm {

MadReason CheckGsiPacket(const roce::Packet& packet) {
  if (packet.opcode != roce::Opcode::kUdSendOnly) return MadReason::kOpcode;
  if (packet.ext.deth.qkey != kGsiQkey) return MadReason::kQkey;
  // Programs can know the Q_Key, but their queue pairs never have number 1.
  if (packet.ext.deth.src_qpn != roce::kGsiQpn) return MadReason::kSource;
  if (packet.src_gid.IsZero() || packet.src_gid.IsMulticast()) return MadReason::kSource;
  return packet.payload.size() == kMadBytes ? MadReason::kNone : MadReason::kLength;
}

roce::Path ReplyPath(const roce::Packet& packet) {
  roce::Path path;
  path.src_mac = packet.dst_mac;
  path.dst_mac = packet.src_mac;
  path.has_vlan = packet.vlan() != 0;
  path.vlan_tci = packet.vlan_tci;
  path.src_gid = packet.dst_gid;
  path.dst_gid = packet.src_gid;
  path.traffic_class = static_cast<uint8_t>(packet.traffic_class & ~roce::kEcnMask);
  path.flow_label = packet.flow_label;
  path.udp_src_port = roce::UdpSourcePort(packet.flow_label, roce::kGsiQpn, roce::kGsiQpn);
  return path;
}

std::vector<std::byte> BuildGsiFrame(const roce::Path& path, const MadBytes& mad, uint32_t psn) {
  const roce::FrameTemplate frame_template(path);
  roce::TxPacket packet;
  packet.opcode = roce::Opcode::kUdSendOnly;
  packet.psn = roce::Psn(psn);
  packet.dest_qpn = roce::kGsiQpn;
  packet.payload_length = kMadBytes;
  packet.ext.deth.qkey = kGsiQkey;
  packet.ext.deth.src_qpn = roce::kGsiQpn;
  std::vector<std::byte> frame(roce::FrameBytes(frame_template, packet));
  roce::EncodeFrame(frame_template, packet, mad.data(), 0, frame.data());
  return frame;
}

}  // namespace roci::control::cm
