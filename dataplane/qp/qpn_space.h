// Hands out queue pair numbers whose low bits name the lcore, so that a sender finds the receiving
// lcore from the packet alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "roce/types.h"

namespace roci::dataplane {

// QPN = sequence << lcore_bits | lcore. Sequences cycle from a random start, so a QPN is reused as
// late as possible. Two live QPNs of an lcore never share a table slot. Control thread only.
class QpnSpace {
 public:
  // Slots of an lcore's QPN table, and so the limit of QPs on one lcore of one device.
  static constexpr uint32_t kSlotBits = 16;
  static constexpr uint32_t kSlots = 1u << kSlotBits;

  QpnSpace() = default;
  QpnSpace(uint32_t lcore_count, uint32_t seed);

  // None if all slots of the lcore are taken. Never 0, 1 or 0xFFFFFF.
  std::optional<roce::Qpn> Allocate(uint32_t lcore);
  void Free(roce::Qpn qpn);

  uint32_t lcore_bits() const { return lcore_bits_; }
  static uint32_t LcoreOf(roce::Qpn qpn, uint32_t lcore_bits) {
    return qpn.value() & ((1u << lcore_bits) - 1);
  }
  static uint32_t SlotOf(roce::Qpn qpn, uint32_t lcore_bits) {
    return (qpn.value() >> lcore_bits) & (kSlots - 1);
  }

 private:
  struct LcoreSpace {
    uint32_t next = 0;
    uint32_t used = 0;
    std::vector<bool> taken;
  };
  uint32_t lcore_bits_ = 0;
  std::vector<LcoreSpace> lcores_;
};

}  // namespace roci::dataplane
