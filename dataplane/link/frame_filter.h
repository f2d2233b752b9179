// Selects the frames of a capture or an impairment: all, or RoCE packets by queue pair and opcode.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
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
  // `frame` is a whole, unchecked Ethernet frame.
  bool Matches(std::span<const std::byte> frame) const;

  // Whether both were requested with the same values. Peers change over time and are not compared.
  friend bool operator==(const FrameFilter& a, const FrameFilter& b) {
    return a.qpns == b.qpns && a.opcodes == b.opcodes;
  }
};

// Offset and version (4 or 6) of the IP header behind Ethernet and up to two VLAN tags. Version 0:
// another protocol, or too short for the IP header.
struct NetworkHeader {
  uint32_t offset = 0;
  uint8_t version = 0;
};
NetworkHeader FindNetworkHeader(std::span<const std::byte> frame);

}  // namespace roci::dataplane
