// CRC-32 by carry-less multiplication in 128-bit registers. Internal to roce/icrc_*.
//
// The message is a polynomial over GF(2), bit-reflected. An accumulator stands for the blocks so
// far; to append a block of d bits it is multiplied by x^d modulo the CRC's polynomial and the
// block is added. Per 128-bit lane that is two carry-less products of 64 bits each (constants
// x^(d+32), x^(d-32)). See Intel's "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction" for the reduction at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "roce/icrc_block.h"

namespace roci::roce::internal {

// x^n modulo the polynomial, bit-reflected and shifted by one bit, since a reflected carry-less
// product lacks one bit.
constexpr uint64_t PowerOfX(unsigned n) {
  uint32_t v = 1;
  for (unsigned i = 0; i < n; ++i) v = (v << 1) ^ ((v >> 31) != 0 ? 0x04C11DB7u : 0u);
  uint32_t reflected = 0;
  for (unsigned i = 0; i < 32; ++i) reflected |= ((v >> i) & 1u) << (31 - i);
  return uint64_t{reflected} << 1;
}

// The pair that moves a 128-bit lane forward by a distance in bytes.
struct alignas(16) Fold {
  uint64_t low, high;
};
constexpr Fold By(unsigned bytes) { return {PowerOfX(bytes * 8 + 32), PowerOfX(bytes * 8 - 32)}; }

inline constexpr Fold kBy16 = By(16);
inline constexpr Fold kX64AndX96 = {PowerOfX(64), PowerOfX(96)};
inline constexpr Fold kBarrett = {0x1DB710641, 0x1F7011641};  // the polynomial and mu

// x moved forward by `k`, plus `block`.
ROCI_CLMUL_INLINE Block Step128(Block x, Block k, Block block) {
  return Xor128(Xor128(MultiplyLowLow(x, k), MultiplyHighHigh(x, k)), block);
}

// 128 bits -> the 32-bit register: fold to 96, to 64, then a Barrett reduction.
ROCI_CLMUL_INLINE uint32_t Reduce128(Block x) {
  const Block low32 = FromWords(0xFFFFFFFF, 0);
  const Block k = Load128(&kX64AndX96);
  const Block barrett = Load128(&kBarrett);
  x = Xor128(MoveDown<8>(x), MultiplyLowHigh(x, k));
  x = Xor128(MoveDown<4>(x), MultiplyLowLow(And128(x, low32), k));
  Block q = MultiplyLowHigh(And128(x, low32), barrett);
  q = MultiplyLowLow(And128(q, low32), barrett);
  return static_cast<uint32_t>(LowWord(Xor128(x, q)) >> 32);
}

// Shuffles that move bytes up or down and fill with zeros: the sixteen indices from kShuffle[32 -
// n] on move up by n, those from kShuffle[32 + n] on move down by n.
struct ShuffleTable {
  uint8_t index[64];
};
inline constexpr ShuffleTable kShuffle = [] {
  ShuffleTable table{};
  for (size_t i = 0; i < 64; ++i) {
    table.index[i] = static_cast<uint8_t>(i >= 32 && i < 48 ? i - 32 : 0x80);
  }
  return table;
}();
ROCI_CLMUL_INLINE Block ShiftUp(Block x, size_t n) {  // n in 0..32
  return Shuffle128(x, Load128(kShuffle.index + 32 - n));
}
ROCI_CLMUL_INLINE Block ShiftDown(Block x, size_t n) {  // n in 0..16
  return Shuffle128(x, Load128(kShuffle.index + 32 + n));
}

template <class T>
ROCI_CLMUL_INLINE T LoadAs(const std::byte* p) {
  T v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
template <class T>
ROCI_CLMUL_INLINE void StoreAs(std::byte* p, uint64_t value) {
  const T v = static_cast<T>(value);
  std::memcpy(p, &v, sizeof(v));
}

// The n (0..15) bytes at `p`, then zeros. Reads no other bytes.
ROCI_CLMUL_INLINE Block LoadPartial(const std::byte* p, size_t n) {
  uint64_t low = 0;
  uint64_t high = 0;
  if (n >= 8) {
    low = LoadAs<uint64_t>(p);
    high = LoadAs<uint64_t>(p + n - 8) >> 8 >> (8 * (15 - n));
  } else if (n >= 4) {
    low = LoadAs<uint32_t>(p) | uint64_t{LoadAs<uint32_t>(p + n - 4)} << (8 * (n - 4));
  } else {
    for (size_t i = 0; i < n; ++i) low |= uint64_t{LoadAs<uint8_t>(p + i)} << (8 * i);
  }
  return FromWords(low, high);
}

// Stores the first n (0..16) bytes of x, and no others.
ROCI_CLMUL_INLINE void StorePartial(std::byte* p, Block x, size_t n) {
  if (n == 16) return Store128(p, x);
  uint64_t rest = LowWord(x);
  if ((n & 8) != 0) {
    StoreAs<uint64_t>(p, rest);
    rest = HighWord(x);
    p += 8;
  }
  if ((n & 4) != 0) {
    StoreAs<uint32_t>(p, rest);
    rest >>= 32;
    p += 4;
  }
  for (size_t i = 0; i < (n & 3); ++i) StoreAs<uint8_t>(p + i, rest >> (8 * i));
}

// Appends the first n (1..16) bytes of `tail`, whose others are zero: accumulator and tail together
// are 16 + n bytes; the first n of them move forward by 16 onto the rest.
ROCI_CLMUL_INLINE Block AppendTail128(Block x, Block tail, size_t n) {
  return Step128(ShiftUp(x, 16 - n), Load128(&kBy16),
                 Or128(ShiftDown(x, n), ShiftUp(tail, 16 - n)));
}

}  // namespace roci::roce::internal
