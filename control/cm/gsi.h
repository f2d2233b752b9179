// Datagrams of QP 1, the general service interface, as frames: what carries MADs over RoCEv2 (IBTA
// vol 1, 13.5.1 and A17.6). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "control/cm/mad.h"
#include "roce/frame.h"
#include "roce/packet.h"

namespace roci::control::cm {

// `packet` is behind gate 1 and addressed to QP 1. kNone if it may carry a MAD.
MadReason CheckGsiPacket(const roce::Packet& packet);
// The way back to the sender of `packet`.
roce::Path ReplyPath(const roce::Packet& packet);
// A whole Ethernet frame. `path` is resolved.
std::vector<std::byte> BuildGsiFrame(const roce::Path& path, const MadBytes& mad, uint32_t psn);

}  // namespace roci::control::cm
