// Which frames a capture or an impairment concerns: all, or RoCE packets by queue pair and opcode.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "roce/types.h"

namespace roci::dataplane {

enum class LinkDirection : uint8_t { kIn, kOut };

// Immutable while lcores use it. Without queue pairs and opcodes it matches every frame; with both,
// a frame must match both. Other frames than RoCEv2 then never match.
struct FrameFilter {
  static constexpr size_t kMaxQpns = 64;
  std::vector<roce::Qpn> qpns;   // destination in the BTH, or source in the DETH
  std::vector<roce::Qpn> peers;  // like `qpns`: the queue pairs to which these were connected
  std::bitset<256> opcodes;      // of the BTH; none set: any

  bool MatchesAll() const { return qpns.empty() && opcodes.none(); }

  // Whether both were requested with the same values. Peers change over time and are not compared.
  friend bool operator==(const FrameFilter& a, const FrameFilter& b) {
    return a.qpns == b.qpns && a.opcodes == b.opcodes;
  }
};

}  // namespace roci::dataplane
