// Random scatter/gather lists of a simulated program.
#pragma once

#include <cstdint>
#include <vector>

#include "roce/work.h"
#include "tests/sim/random.h"

namespace roci::sim {

inline constexpr uint32_t kMaxSge = 32;

// Cuts `length` bytes into 1..kMaxSge pieces of at least one byte (none for no bytes).
inline std::vector<uint32_t> Split(Random& random, uint32_t length) {
  std::vector<uint32_t> pieces;
  while (length > 0) {
    uint32_t piece = length;
    if (pieces.size() + 1 < kMaxSge && random.Chance(400)) {
      piece = static_cast<uint32_t>(random.Between(1, length));
    }
    pieces.push_back(piece);
    length -= piece;
  }
  return pieces;
}

inline void AppendSge(std::vector<roce::Sge>& sges, uint64_t va, uint32_t length, uint32_t key) {
  sges.push_back(roce::Sge{va, length, roce::Key(key)});
}

// Appends elements for `length` bytes from `va` on, in random pieces.
inline void AppendSplit(Random& random, std::vector<roce::Sge>& sges, uint64_t va, uint32_t length,
                        uint32_t key) {
  for (const uint32_t piece : Split(random, length)) {
    AppendSge(sges, va, piece, key);
    va += piece;
  }
}

template <class Wqe>
void FinishSges(Wqe& wqe, const std::vector<roce::Sge>& sges) {
  wqe.num_sge = static_cast<uint8_t>(sges.size());
  if (!sges.empty()) wqe.first_sge = sges.front();
}

}  // namespace roci::sim
