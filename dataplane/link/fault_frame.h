// A RoCE packet as faults see it: parsed as far as they match it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dataplane/types/frame_filter.h"
#include "dataplane/types/queue_pair_match.h"
#include "roce/headers.h"
#include "roce/opcode.h"
#include "roce/types.h"

namespace roci::dataplane {

struct FaultFrame {
  std::span<std::byte> bytes;  // the whole frame
  size_t transport_offset = 0;
  LinkDirection direction = LinkDirection::kOut;
  // The device's queue pair: the sender of an outgoing packet, the receiver of an incoming one. 0:
  // unknown.
  roce::Qpn own{};
  const QueuePairOrigin* origin = nullptr;  // of `own`; null: unknown
  bool is_of_other_lcore = false;           // `own`: its origin is not known here
  uint64_t now_ns = 0;

  // From its BTH on.
  std::span<std::byte> transport() const { return bytes.subspan(transport_offset); }
  roce::Bth bth() const { return roce::Bth::Load(bytes.data() + transport_offset); }
};

// The source queue pair of a datagram; 0: another packet, or cut off.
roce::Qpn DatagramSource(std::span<const std::byte> transport);
// The address at the other end of the frame's way.
roce::Gid PeerOf(const FaultFrame& frame);

}  // namespace roci::dataplane
