// Helpers for the responder's tests.
#pragma once

#include <gtest/gtest.h>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {

inline constexpr uint32_t kMtu = 256;

inline void ExpectAck(const std::vector<WirePacket>& packets, Psn psn, Msn msn) {
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(packets[0].tx.psn, psn);
  EXPECT_EQ(packets[0].tx.dest_qpn, kPeerQpn);
  EXPECT_EQ(packets[0].tx.ext.aeth.kind(), AethKind::kAck);
  EXPECT_EQ(packets[0].tx.ext.aeth.msn, msn);
}

inline void ExpectNak(const std::vector<WirePacket>& packets, Psn psn, NakCode code) {
  ASSERT_EQ(packets.size(), 1u);
  EXPECT_EQ(packets[0].tx.opcode, Opcode::kRcAcknowledge);
  EXPECT_EQ(packets[0].tx.psn, psn);
  EXPECT_EQ(packets[0].tx.ext.aeth.kind(), AethKind::kNak);
  EXPECT_EQ(packets[0].tx.ext.aeth.nak_code(), code);
}

inline std::byte ByteAt(Node& node, uint64_t offset) { return node.host.bytes[offset]; }

}  // namespace roci::roce
