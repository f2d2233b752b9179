// Judges congestion notification: marks, CNPs, and what the sender makes of them (IBTA vol 1,
// A17.9).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>

#include "tools/judge/reporter.h"

namespace roci::tools::judge {

class CongestionWatch {
 public:
  static constexpr size_t kMostPorts = 4096;
  using PortKey = std::array<uint8_t, 16>;

  // A packet that is no CNP.
  void NotePacket(const SeenFrame& frame, Flow& flow, Reporter& out);
  void NoteCnp(const SeenFrame& frame, Flow& flow, Reporter& out);

  // By sending address, and by sending and receiving address.
  const std::map<PortKey, CnpIntervals>& ports() const { return ports_; }
  const std::map<std::pair<PortKey, PortKey>, CnpIntervals>& pairs() const { return pairs_; }

 private:
  std::map<PortKey, CnpIntervals> ports_;
  std::map<std::pair<PortKey, PortKey>, CnpIntervals> pairs_;
};

}  // namespace roci::tools::judge
