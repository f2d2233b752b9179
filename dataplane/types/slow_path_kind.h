// The kinds of frames for the control thread. Each has a queue of its own, so that a flood of one
// kind displaces no frames of another.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace roci::dataplane {

enum class SlowPathKind : uint8_t {
  kNeighbours,  // ARP, and the solicitations and advertisements of neighbour discovery
  kMads,        // RoCE packets to QP 0 and QP 1
  kOthers,      // the rest that is not RoCE: ping, reports of multicast groups, foreign protocols
};
inline constexpr std::array kSlowPathKinds = {SlowPathKind::kNeighbours, SlowPathKind::kMads,
                                              SlowPathKind::kOthers};

}  // namespace roci::dataplane
