// Frames for the tests: random packets of an opcode, paths, and repair of checksums after a change.
#pragma once

#include <cstdint>

#include "roce/frame.h"
#include "roce/packet.h"
#include "tests/unit/roce/vectors.h"

namespace roci::roce {

// All fields that `opcode` carries are random, the others are zero. The payload length is as given.
TxPacket RandomTxPacket(Opcode opcode, uint32_t payload_length, uint32_t seed);

Path TestPath(bool ipv6, bool vlan);

// Encodes with a random payload.
Frame MakeFrame(const Path& path, const TxPacket& packet, uint32_t seed);

// Puts the header checksum and the ICRC of an untagged IPv4 frame right, as far as it still is one.
// Computed with zlib and without the code under test.
void FixChecksums(Frame& frame);

}  // namespace roci::roce
