#include "tests/unit/tools/decode/decode_frames.h"

#include "roce/icrc.h"

namespace roci::tools {

roce::Path TestPath(bool is_ipv6) {
  roce::Path path;
  path.dst_mac = roce::Mac{{2, 0, 0, 0, 0, 1}};
  path.src_mac = roce::Mac{{2, 0, 0, 0, 0, 2}};
  path.src_gid = is_ipv6 ? roce::Gid{{0xFD, 1}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 1}});
  path.dst_gid = is_ipv6 ? roce::Gid{{0xFD, 2}} : roce::Gid::FromIpv4(roce::Ipv4{{10, 0, 0, 2}});
  path.traffic_class = 0x6A;
  path.flow_label = is_ipv6 ? 0x12345 : 0;
  path.udp_src_port = 0xC123;
  return path;
}

Bytes Encode(const roce::Path& path, roce::Opcode opcode, uint32_t payload_length) {
  const roce::FrameTemplate tmpl(path);
  roce::TxPacket tx;
  tx.opcode = opcode;
  tx.psn = roce::Psn(0xABCDEF);
  tx.dest_qpn = roce::Qpn(0x123456);
  tx.payload_length = payload_length;
  tx.ext.reth = {0x1122334455667788, roce::Key(0x99), 77};
  tx.ext.imm = {0xCAFE};
  tx.ext.aeth = roce::Aeth::Nak(roce::Msn(5), roce::NakCode::kRemoteAccessError);
  tx.ext.xrc = {0x77};
  tx.ext.deth = {0x80010000, roce::Qpn(1)};
  const Bytes payload(payload_length, std::byte{0x5A});
  Bytes frame(roce::FrameBytes(tmpl, tx));
  roce::EncodeFrame(tmpl, tx, payload.data(), 7, frame.data());
  return frame;
}

std::optional<DecodedFrame> DissectWhole(const Bytes& frame, uint32_t link_type) {
  return Dissect(frame, static_cast<uint32_t>(frame.size()), link_type).roce;
}

FrameKind KindOf(const Bytes& frame, uint32_t link_type) {
  return Dissect(frame, static_cast<uint32_t>(frame.size()), link_type).kind;
}

void FixIcrc(Bytes& frame, bool is_ipv6) {
  const size_t covered = frame.size() - 14 - roce::kIcrcBytes;
  roce::StoreIcrc(&frame[14 + covered],
                  roce::ActiveCrcKernel().masked(&frame[14], covered, is_ipv6));
}

Bytes ToBytes(std::initializer_list<int> values) {
  Bytes out;
  for (const int value : values) out.push_back(static_cast<std::byte>(value));
  return out;
}

Bytes Join(std::initializer_list<Bytes> parts) {
  Bytes out;
  for (const Bytes& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

}  // namespace roci::tools
