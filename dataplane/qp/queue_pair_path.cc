#include "dataplane/qp/queue_pair_path.h"

#include "roce/headers.h"

namespace roci::dataplane {
namespace {

constexpr uint32_t kPkeyFullMember = 0x8000;
constexpr uint32_t kPkeyBase = 0x7FFF;

// Equal on 15 bits, one side a full member (IBTA vol 1, 10.9.3).
bool PkeysMatch(uint16_t a, uint16_t b) {
  return ((a ^ b) & kPkeyBase) == 0 && ((a | b) & kPkeyFullMember) != 0;
}

}  // namespace

void QueuePairPath::Use(const roce::Path& path, bool answers_marks) {
  roce::Path sent = path;
  // As adapters do: the DSCP is that of the address vector, and the ECN field says that the queue
  // pair reacts to marks (RFC 3168, 5).
  if (answers_marks) {
    sent.traffic_class =
        static_cast<uint8_t>((path.traffic_class & ~roce::kEcnMask) | roce::kEcnCapable);
  }
  frame_ = roce::FrameTemplate(sent);
  local_gid_ = path.src_gid;
  remote_gid_ = path.dst_gid;
  pkey_ = path.pkey;
  vlan_ = path.vlan();
}

void QueuePairPath::UseSourceOf(const roce::Packet& packet, const roce::Mac& mac, roce::Qpn local) {
  roce::Path back;
  back.src_mac = mac;
  back.dst_mac = packet.src_mac;
  back.has_vlan = packet.has_vlan;
  back.vlan_tci = packet.vlan_tci;
  back.src_gid = packet.dst_gid;
  back.dst_gid = packet.src_gid;
  back.udp_src_port = roce::UdpSourcePort(0, local, packet.ext.deth.src_qpn);
  back.pkey = packet.pkey;
  frame_ = roce::FrameTemplate(back);
}

roce::DropReason QueuePairPath::Check(const roce::Packet& packet, roce::QpType type) const {
  if (!PkeysMatch(packet.pkey, pkey_)) return roce::DropReason::kPkey;
  if (type == roce::QpType::kUd) return roce::DropReason::kNone;
  if (packet.src_gid != remote_gid_ || packet.dst_gid != local_gid_) {
    return roce::DropReason::kAddress;
  }
  if (packet.vlan() != vlan_) [[unlikely]]
    return roce::DropReason::kVlan;
  return roce::DropReason::kNone;
}

}  // namespace roci::dataplane
