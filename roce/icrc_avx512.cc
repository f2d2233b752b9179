// CRC-32 by folding 64-byte blocks with VPCLMULQDQ, fused with the copy. Each function that uses
// these instructions has a target attribute; the rest of the file and its headers is compiled for
// any processor. Such functions call no standard library templates.
//
// A 512-bit accumulator stands for the blocks so far (roce/icrc_clmul.h has the arithmetic).
// Leading zero bytes change nothing while the state is zero, so messages are right-aligned into
// whole blocks where possible.
#include "roce/icrc_kernels.h"

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about its own _mm512_undefined_epi32() inside the intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include "roce/icrc_clmul.h"

namespace roci::roce::internal {
namespace {

#define ROCI_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,vpclmulqdq,pclmul,bmi2")))
#define ROCI_AVX512_INLINE ROCI_AVX512 __attribute__((always_inline)) inline

struct alignas(64) FoldLanes {
  Fold lane[4];
};

alignas(64) constexpr FoldLanes kBy64 = {{By(64), By(64), By(64), By(64)}};
alignas(64) constexpr FoldLanes kBy256 = {{By(256), By(256), By(256), By(256)}};
// Brings lanes 0..2 onto lane 3.
alignas(64) constexpr FoldLanes kOntoLane3 = {{By(48), By(32), By(16), {0, 0}}};
struct alignas(64) ByteIndex {
  uint8_t i[64];
};
constexpr ByteIndex MakeByteIndex() {
  ByteIndex index{};
  for (unsigned i = 0; i < 64; ++i) index.i[i] = static_cast<uint8_t>(i);
  return index;
}
alignas(64) constexpr ByteIndex kByteIndex = MakeByteIndex();

constexpr int kXor3 = 0x96;  // vpternlog: a ^ b ^ c

// x moved forward by `k`, plus `block`.
ROCI_AVX512_INLINE __m512i Step(__m512i x, __m512i k, __m512i block) {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00),
                                   _mm512_clmulepi64_epi128(x, k, 0x11), block, kXor3);
}

ROCI_AVX512_INLINE uint32_t Reduce512(__m512i x) {
  const __m512i k = _mm512_load_si512(&kOntoLane3);
  __m512i a =
      _mm512_xor_si512(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11));
  a = _mm512_mask_blend_epi64(0xC0, a, x);
  const __m256i b = _mm256_xor_si256(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
  return Reduce128(_mm_xor_si128(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1)));
}

ROCI_AVX512_INLINE __mmask64 LowBytes(size_t n) {  // n in 0..64
  return _bzhi_u64(~0ull, static_cast<unsigned>(n));
}

// Appends the first n (1..64) bytes of `tail`, whose others are zero: accumulator and tail together
// are 64 + n bytes; the first n of them move forward by 64 onto the rest.
ROCI_AVX512_INLINE __m512i AppendTail(__m512i x, __m512i tail, size_t n) {
  const __m512i rotate =
      _mm512_add_epi8(_mm512_load_si512(&kByteIndex), _mm512_set1_epi8(static_cast<char>(n)));
  const __mmask64 kept = LowBytes(64 - n);
  const __m512i x_rotated = _mm512_permutexvar_epi8(rotate, x);
  const __m512i tail_rotated = _mm512_permutexvar_epi8(rotate, tail);
  return Step(_mm512_maskz_mov_epi8(~kept, x_rotated), _mm512_load_si512(&kBy64),
              _mm512_mask_blend_epi8(kept, tail_rotated, x_rotated));
}

// `dst` is null, and not used, without kCopy.
template <bool kCopy>
ROCI_AVX512_INLINE __m512i LoadAndStore(std::byte* dst, const std::byte* src, size_t at) {
  const __m512i v = _mm512_loadu_si512(src + at);
  if constexpr (kCopy) _mm512_storeu_si512(dst + at, v);
  return v;
}

// Appends blocks of 64 bytes; four accumulators hide the multiplier's latency.
template <bool kCopy>
ROCI_AVX512_INLINE __m512i AppendBlocks(__m512i x, std::byte* dst, const std::byte* src,
                                        size_t blocks) {
  const __m512i by64 = _mm512_load_si512(&kBy64);
  size_t at = 0;
  if (blocks >= 8) {
    const __m512i by256 = _mm512_load_si512(&kBy256);
    __m512i x0 = Step(x, by64, LoadAndStore<kCopy>(dst, src, 0));
    __m512i x1 = LoadAndStore<kCopy>(dst, src, 64);
    __m512i x2 = LoadAndStore<kCopy>(dst, src, 128);
    __m512i x3 = LoadAndStore<kCopy>(dst, src, 192);
    at = 256;
    for (blocks -= 4; blocks >= 4; blocks -= 4, at += 256) {
      x0 = Step(x0, by256, LoadAndStore<kCopy>(dst, src, at));
      x1 = Step(x1, by256, LoadAndStore<kCopy>(dst, src, at + 64));
      x2 = Step(x2, by256, LoadAndStore<kCopy>(dst, src, at + 128));
      x3 = Step(x3, by256, LoadAndStore<kCopy>(dst, src, at + 192));
    }
    x = Step(Step(Step(x0, by64, x1), by64, x2), by64, x3);
  }
  for (; blocks != 0; --blocks, at += 64) {
    x = Step(x, by64, LoadAndStore<kCopy>(dst, src, at));
  }
  return x;
}

// Appends `length` bytes and then `pad` zeros, length % 64 + pad <= 64.
template <bool kCopy>
ROCI_AVX512_INLINE __m512i Append(__m512i x, std::byte* dst, const std::byte* src, size_t length,
                                  size_t pad) {
  const size_t whole = length & ~size_t{63};
  if (whole != 0) x = AppendBlocks<kCopy>(x, dst, src, whole / 64);
  const size_t rest = length - whole;
  if (rest + pad == 0) return x;
  const __m512i v = _mm512_maskz_loadu_epi8(LowBytes(rest), src + whole);
  if constexpr (kCopy) _mm512_mask_storeu_epi8(dst + whole, LowBytes(rest + pad), v);
  return AppendTail(x, v, rest + pad);
}

template <bool kCopy>
ROCI_AVX512_INLINE CrcState UpdateAny(CrcState state, std::byte* dst, const std::byte* src,
                                      size_t length) {
  const __m512i start = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state)));
  if (length >= 64) {
    const __m512i x = _mm512_xor_si512(start, LoadAndStore<kCopy>(dst, src, 0));
    return Reduce512(Append<kCopy>(x, kCopy ? dst + 64 : nullptr, src + 64, length - 64, 0));
  }
  // The state is added to the first four bytes; the sum, of max(length, 4) bytes, is right-aligned.
  const __m512i v = _mm512_maskz_loadu_epi8(LowBytes(length), src);
  if constexpr (kCopy) _mm512_mask_storeu_epi8(dst, LowBytes(length), v);
  const __m512i rotate =
      _mm512_add_epi8(_mm512_load_si512(&kByteIndex), _mm512_set1_epi8(static_cast<char>(length)));
  const __m512i x = _mm512_permutexvar_epi8(rotate, _mm512_xor_si512(start, v));
  if (length >= 4) [[likely]]
    return Reduce512(x);
  if (length == 0) return state;
  // Fewer bytes than the state has: its bytes beyond the message are not multiplied.
  const uint32_t reduced = Reduce512(_mm512_maskz_mov_epi8(~LowBytes(64 - length), x));
  return reduced ^ (state >> (8 * length));
}

// A masked message of `total` bytes is cut into whole blocks with the first one, of
// FirstBytes(total), right-aligned.
ROCI_AVX512_INLINE size_t FirstBytes(size_t total) { return ((total - 1) & 63) + 1; }

// The accumulator over the first one or two blocks of pseudo header and packet, where all masks
// lie.
ROCI_AVX512_INLINE __m512i LoadHead(const std::byte* network, size_t total,
                                    const MaskTable& masks) {
  const size_t first = FirstBytes(total);
  // Byte j of the first block is byte j - (64 - first) of the message. The message's first 8 are
  // not in memory.
  const std::byte* second = network - kPseudoHeaderBytes + first;
  const size_t absent = first > kPseudoHeaderBytes ? 64 + kPseudoHeaderBytes - first : 64;
  __m512i x = _mm512_maskz_loadu_epi8(~LowBytes(absent), second - 64);
  x = _mm512_or_si512(x, _mm512_loadu_si512(masks.data() + first));
  if (total <= 64) return x;
  const size_t skip = first < kPseudoHeaderBytes ? kPseudoHeaderBytes - first : 0;
  const __m512i block = _mm512_maskz_loadu_epi8(~LowBytes(skip), second);
  return Step(x, _mm512_load_si512(&kBy64),
              _mm512_or_si512(block, _mm512_loadu_si512(masks.data() + first + 64)));
}

ROCI_AVX512 CrcState Update(CrcState state, const std::byte* data, size_t length) {
  return UpdateAny<false>(state, nullptr, data, length);
}

ROCI_AVX512 CrcState CopyUpdate(CrcState state, std::byte* dst, const std::byte* src,
                                size_t length) {
  return UpdateAny<true>(state, dst, src, length);
}

ROCI_AVX512 CrcState Masked(const std::byte* network, size_t length, bool is_ipv6) {
  const size_t total = kPseudoHeaderBytes + length;
  __m512i x = LoadHead(network, total, is_ipv6 ? kMaskIpv6 : kMaskIpv4);
  const size_t done = FirstBytes(total) + 64;
  if (total > done) {
    x = AppendBlocks<false>(x, nullptr, network - kPseudoHeaderBytes + done, (total - done) / 64);
  }
  return Reduce512(x);
}

ROCI_AVX512 CrcState MaskedCopy(std::byte* network, size_t header_length, bool is_ipv6,
                                const std::byte* payload, size_t payload_length, size_t pad) {
  const __m512i x =
      LoadHead(network, kPseudoHeaderBytes + header_length, is_ipv6 ? kMaskIpv6 : kMaskIpv4);
  return Reduce512(Append<true>(x, network + header_length, payload, payload_length, pad));
}

}  // namespace

bool Avx512KernelRuns() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("bmi2");
}

const CrcKernel kAvx512Kernel = {"avx512-vpclmulqdq", Update, CopyUpdate, Masked, MaskedCopy};

}  // namespace roci::roce::internal

#endif  // defined(__x86_64__)
