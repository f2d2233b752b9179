// Which frames a capture or an impairment is about: all, or RoCE packets of some queue pairs and
// opcodes.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "roce/types.h"

namespace roci::dataplane {

enum class LinkDirection : uint8_t { kIn, kOut };

// Immutable once lcores use it. With neither set it matches every frame; with both, a frame has to
// match both, and frames that are no RoCEv2 match nothing.
struct FrameFilter {
  static constexpr size_t kMaxQpns = 64;
  std::vector<roce::Qpn> qpns;   // in the BTH as destination, or in the DETH as source
  std::vector<roce::Qpn> peers;  // the same, beside `qpns`: those that these were connected to
  std::bitset<256> opcodes;      // of the BTH; none set: any

  bool MatchesAll() const { return qpns.empty() && opcodes.none(); }
  // `frame` is a whole Ethernet frame, not checked by anybody yet.
  bool Matches(std::span<const std::byte> frame) const;

  // Whether somebody asked for the same. Peers come and go.
  friend bool operator==(const FrameFilter& a, const FrameFilter& b) {
    return a.qpns == b.qpns && a.opcodes == b.opcodes;
  }
};

// Offset of the IP header behind Ethernet and up to two VLAN tags, with its version (4 or 6); a
// version of 0 for other frames, and for those too short for the IP header.
struct NetworkHeader {
  uint32_t offset = 0;
  uint8_t version = 0;
};
NetworkHeader FindNetworkHeader(std::span<const std::byte> frame);

}  // namespace roci::dataplane
