// Makes the frames that faults inject from the packets that they hit. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "dataplane/link/fault_frame.h"
#include "dataplane/types/fault_settings.h"

namespace roci::dataplane {

struct InjectedFrame {
  uint32_t bytes = 0;
  LinkDirection direction = LinkDirection::kOut;
};

// Longest frame that can be injected.
inline constexpr size_t kMostInjectedBytes = Injection::kMostBytes;

// Writes the frame to `out`, which has kMostInjectedBytes. `answered`: the queue pair that sent the
// packet, where answers to it go; 0: unknown. `first`: the first packet that the fault has matched.
// Nothing: no such frame can be made from this packet.
std::optional<InjectedFrame> MakeInjected(const Injection& injection, const FaultFrame& hit,
                                          roce::Qpn answered, std::span<const std::byte> first,
                                          std::span<std::byte> out);

}  // namespace roci::dataplane
