// Queue pairs that wait for packets that others have overtaken.
#pragma once

#include <cstdint>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {

inline constexpr uint32_t kWaitNs = 100'000;
inline constexpr uint32_t kMtu = 256;

inline NodeOptions Tolerant() {
  NodeOptions options;
  options.limits.reorder_wait_ns = kWaitNs;
  return options;
}

// Packet `i` of a WRITE of `packets` whole packets, with AckReq in the last.
inline WirePacket WritePacket(uint32_t i, uint32_t packets) {
  const Opcode opcode = i == 0             ? Opcode::kRcWriteFirst
                        : i + 1 == packets ? Opcode::kRcWriteLast
                                           : Opcode::kRcWriteMiddle;
  WirePacket packet = MakeWrite(opcode, kRqPsn + i, kMtu, packets * kMtu);
  packet.tx.ack_request = i + 1 == packets;
  return packet;
}

}  // namespace roci::roce
