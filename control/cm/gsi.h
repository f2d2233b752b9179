// Checks and builds datagrams of QP 1, the general service interface, which carry MADs over RoCEv2
// (IBTA vol 1, 13.5.1 and A17.6). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "control/cm/mad.h"
#include "roce/frame.h"
#include "roce/packet.h"

namespace roci::control::cm {

// `packet` has passed gate 1 and is addressed to QP 1. kNone: it may carry a MAD.
MadReason CheckGsiPacket(const roce::Packet& packet);
// The path to the sender of `packet`.
roce::Path ReplyPath(const roce::Packet& packet);
// A whole Ethernet frame. `path` is resolved.
std::vector<std::byte> BuildGsiFrame(const roce::Path& path, const MadBytes& mad, uint32_t psn);

}  // namespace roci::control::cm
