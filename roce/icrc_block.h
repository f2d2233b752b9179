// 128-bit registers with carry-less multiplication, for the CRC kernels: SSE4.1 and PCLMULQDQ on
// x86, NEON and PMULL on arm64. Internal to roce/icrc_*.
#pragma once

#if defined(__x86_64__) || defined(__aarch64__)
#define ROCI_HAS_CLMUL 1
#else
#define ROCI_HAS_CLMUL 0
#endif

#if ROCI_HAS_CLMUL

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#define ROCI_CLMUL_TARGET "sse4.1,pclmul"
#else
#include <arm_neon.h>
#if defined(__clang__)
#define ROCI_CLMUL_TARGET "aes"
#else
#define ROCI_CLMUL_TARGET "+crypto"
#endif
#endif

namespace roci::roce::internal {

// For functions that are inlined into kernels which have at least these instructions.
#define ROCI_CLMUL_INLINE __attribute__((target(ROCI_CLMUL_TARGET), always_inline)) inline

#if defined(__x86_64__)

using Block = __m128i;

ROCI_CLMUL_INLINE Block Load128(const void* p) {
  return _mm_loadu_si128(static_cast<const Block*>(p));
}
ROCI_CLMUL_INLINE void Store128(void* p, Block x) { _mm_storeu_si128(static_cast<Block*>(p), x); }
ROCI_CLMUL_INLINE Block FromWords(uint64_t low, uint64_t high) {
  return _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
}
ROCI_CLMUL_INLINE uint64_t LowWord(Block x) { return static_cast<uint64_t>(_mm_cvtsi128_si64(x)); }
ROCI_CLMUL_INLINE uint64_t HighWord(Block x) {
  return static_cast<uint64_t>(_mm_extract_epi64(x, 1));
}
ROCI_CLMUL_INLINE Block Xor128(Block a, Block b) { return _mm_xor_si128(a, b); }
ROCI_CLMUL_INLINE Block Or128(Block a, Block b) { return _mm_or_si128(a, b); }
ROCI_CLMUL_INLINE Block And128(Block a, Block b) { return _mm_and_si128(a, b); }
// Carry-less products of words of a and b.
ROCI_CLMUL_INLINE Block MultiplyLowLow(Block a, Block b) { return _mm_clmulepi64_si128(a, b, 0); }
ROCI_CLMUL_INLINE Block MultiplyLowHigh(Block a, Block b) {
  return _mm_clmulepi64_si128(a, b, 0x10);
}
ROCI_CLMUL_INLINE Block MultiplyHighHigh(Block a, Block b) {
  return _mm_clmulepi64_si128(a, b, 0x11);
}
// Byte i of the result is byte index[i] of x, or zero where index[i] is 0x80.
ROCI_CLMUL_INLINE Block Shuffle128(Block x, Block index) { return _mm_shuffle_epi8(x, index); }
// Bytes move down; zeros come in.
template <int kBytes>
ROCI_CLMUL_INLINE Block MoveDown(Block x) {
  return _mm_srli_si128(x, kBytes);
}

#else  // arm64

using Block = uint8x16_t;

ROCI_CLMUL_INLINE Block Load128(const void* p) { return vld1q_u8(static_cast<const uint8_t*>(p)); }
ROCI_CLMUL_INLINE void Store128(void* p, Block x) { vst1q_u8(static_cast<uint8_t*>(p), x); }
ROCI_CLMUL_INLINE Block FromWords(uint64_t low, uint64_t high) {
  return vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(low), vcreate_u64(high)));
}
ROCI_CLMUL_INLINE uint64_t LowWord(Block x) { return vgetq_lane_u64(vreinterpretq_u64_u8(x), 0); }
ROCI_CLMUL_INLINE uint64_t HighWord(Block x) { return vgetq_lane_u64(vreinterpretq_u64_u8(x), 1); }
ROCI_CLMUL_INLINE Block Xor128(Block a, Block b) { return veorq_u8(a, b); }
ROCI_CLMUL_INLINE Block Or128(Block a, Block b) { return vorrq_u8(a, b); }
ROCI_CLMUL_INLINE Block And128(Block a, Block b) { return vandq_u8(a, b); }
// Carry-less products of words of a and b.
ROCI_CLMUL_INLINE Block MultiplyWords(uint64_t a, uint64_t b) {
  return vreinterpretq_u8_p128(vmull_p64(a, b));
}
ROCI_CLMUL_INLINE Block MultiplyLowLow(Block a, Block b) {
  return MultiplyWords(LowWord(a), LowWord(b));
}
ROCI_CLMUL_INLINE Block MultiplyLowHigh(Block a, Block b) {
  return MultiplyWords(LowWord(a), HighWord(b));
}
ROCI_CLMUL_INLINE Block MultiplyHighHigh(Block a, Block b) {
  return vreinterpretq_u8_p128(vmull_high_p64(vreinterpretq_p64_u8(a), vreinterpretq_p64_u8(b)));
}
// Byte i of the result is byte index[i] of x, or zero where index[i] is 0x80.
ROCI_CLMUL_INLINE Block Shuffle128(Block x, Block index) { return vqtbl1q_u8(x, index); }
// Bytes move down; zeros come in.
template <int kBytes>
ROCI_CLMUL_INLINE Block MoveDown(Block x) {
  return vextq_u8(x, vdupq_n_u8(0), kBytes);
}

#endif

}  // namespace roci::roce::internal

#endif  // ROCI_HAS_CLMUL
