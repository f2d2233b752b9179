// Converts a parsed packet back to the TxPacket and Path from which its sender encoded it.
#pragma once

#include <cstdint>

#include "roce/frame.h"
#include "roce/packet.h"

namespace roci::roce {

inline TxPacket TxOf(const Packet& packet) {
  TxPacket tx;
  tx.opcode = packet.opcode;
  tx.solicited = packet.solicited;
  tx.ack_request = packet.ack_request;
  tx.fecn = packet.fecn;
  tx.becn = packet.becn;
  tx.psn = packet.psn;
  tx.dest_qpn = packet.dest_qpn;
  tx.payload_length = static_cast<uint32_t>(packet.payload.size());
  tx.ext = packet.ext;
  return tx;
}

inline Path PathOf(const Packet& packet) {
  return {.src_mac = packet.src_mac,
          .dst_mac = packet.dst_mac,
          .has_vlan = packet.has_vlan,
          .vlan_tci = packet.vlan_tci,
          .src_gid = packet.src_gid,
          .dst_gid = packet.dst_gid,
          .hop_limit = packet.hop_limit,
          .traffic_class = packet.traffic_class,
          .flow_label = packet.flow_label,
          .udp_src_port = packet.udp_src_port,
          .pkey = packet.pkey,
          .mig_req = packet.mig_req};
}

}  // namespace roci::roce
