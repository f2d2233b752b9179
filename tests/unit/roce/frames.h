// Frames for the tests: random packets of an opcode, paths, and recomputed checksums.
#pragma once

#include <cstdint>

#include "roce/frame.h"
#include "roce/packet.h"
#include "tests/unit/roce/vectors.h"

namespace roci::roce {

// Sets every field that `opcode` carries to a random value and the others to zero. The payload
// length is as given.
TxPacket RandomTxPacket(Opcode opcode, uint32_t payload_length, uint32_t seed);

Path TestPath(bool ipv6, bool vlan);

// Encodes with a random payload.
Frame MakeFrame(const Path& path, const TxPacket& packet, uint32_t seed);

// Recomputes the IPv4 header checksum and the ICRC of an untagged IPv4 frame, as far as the frame
// still is one. Uses zlib, not the code under test.
void FixChecksums(Frame& frame);

}  // namespace roci::roce
