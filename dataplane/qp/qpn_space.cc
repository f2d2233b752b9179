#include "dataplane/qp/qpn_space.h"

#include <bit>
#include <cassert>
#include <random>

namespace roci::dataplane {
namespace {

constexpr uint32_t kReservedQpns = 3;  // 0, 1 and that of multicast

}  // namespace

QpnSpace::QpnSpace(uint32_t lcore_count, uint32_t seed)
    : lcore_bits_(static_cast<uint32_t>(std::bit_width(lcore_count - 1))), lcores_(lcore_count) {
  std::mt19937 random(seed);
  for (LcoreSpace& space : lcores_) {
    space.next = static_cast<uint32_t>(random());
    space.taken.resize(kSlots);
  }
}

std::optional<roce::Qpn> QpnSpace::Allocate(uint32_t lcore) {
  LcoreSpace& space = lcores_[lcore];
  // The reserved numbers take at most one slot each, so this many steps find a free slot.
  for (uint32_t step = 0; step < kSlots + kReservedQpns; ++step) {
    const roce::Qpn qpn(space.next++ << lcore_bits_ | lcore);
    if (qpn.value() <= 1 || qpn == roce::kMulticastQpn) continue;
    auto taken = space.taken[SlotOf(qpn, lcore_bits_)];
    if (taken) continue;
    taken = true;
    ++space.used;
    return qpn;
  }
  return std::nullopt;
}

void QpnSpace::Free(roce::Qpn qpn) {
  LcoreSpace& space = lcores_[LcoreOf(qpn, lcore_bits_)];
  assert(space.taken[SlotOf(qpn, lcore_bits_)]);
  space.taken[SlotOf(qpn, lcore_bits_)] = false;
  --space.used;
}

}  // namespace roci::dataplane
