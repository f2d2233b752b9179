// The cheapest frames that this machine can build and check, for machine_limit: headers in one
// 64-byte block, one pass over the payload. Compiled with -march=native; without VPCLMULQDQ the
// daemon's CRC kernel is the fastest.
//
// The payload is 64-byte aligned; the block before it has the last 8 bytes of Ethernet, then IPv4,
// UDP, BTH and RETH: 8 + 20 + 8 + 12 + 16. The ICRC follows the payload.
#pragma once

#if defined(__AVX512VBMI__) && defined(__VPCLMULQDQ__)
#define ROCI_LIMIT_AVX512 1
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns about its own _mm512_undefined_epi32() inside the intrinsics (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "roce/frame.h"
#include "roce/icrc.h"

namespace roci::bench {

inline constexpr size_t kBlock = 64;

struct alignas(kBlock) HeaderBlock {
  std::array<std::byte, kBlock> bytes;
};

// Offsets in the block.
inline constexpr size_t kIpAt = 8;
inline constexpr size_t kBthAt = kIpAt + 20 + 8;
inline constexpr size_t kQpnWordAt = kBthAt + 4;
inline constexpr size_t kPsnWordAt = kBthAt + 8;
inline constexpr size_t kRethAt = kBthAt + 12;

// A WRITE ONLY packet of `payload_bytes` between two IPv4 addresses, complete except for fields
// that differ between packets: PSN, address, R_Key and length.
HeaderBlock WriteOnlyBlock(uint32_t payload_bytes);

// The six bytes of Ethernet that do not fit into the block.
inline constexpr size_t kFrameBytesBeforePayload = 14 + 20 + 8 + 12 + 16;

#ifdef ROCI_LIMIT_AVX512

// x^n modulo the CRC-32 polynomial, reflected; see roce/icrc_avx512.cc for the method.
constexpr uint64_t PowerOfX(unsigned n) {
  uint32_t v = 1;
  for (unsigned i = 0; i < n; ++i) v = (v << 1) ^ ((v >> 31) != 0 ? 0x04C11DB7u : 0u);
  uint32_t reflected = 0;
  for (unsigned i = 0; i < 32; ++i) reflected |= ((v >> i) & 1u) << (31 - i);
  return uint64_t{reflected} << 1;
}

template <unsigned kBytes>
inline __m512i FoldBy() {
  static constexpr uint64_t kLow = PowerOfX(kBytes * 8 + 32);
  static constexpr uint64_t kHigh = PowerOfX(kBytes * 8 - 32);
  return _mm512_broadcast_i64x2(
      _mm_set_epi64x(static_cast<long long>(kHigh), static_cast<long long>(kLow)));
}

inline __m512i Fold(__m512i x, __m512i by, __m512i block) {
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, by, 0x00),
                                   _mm512_clmulepi64_epi128(x, by, 0x11), block, 0x96);
}

inline __m512i Load(const std::byte* p) { return _mm512_loadu_si512(p); }
inline void Store(std::byte* p, __m512i v) { _mm512_storeu_si512(p, v); }

inline uint32_t FoldTo32(__m512i x) {
  alignas(kBlock) static constexpr uint64_t kOntoLast[8] = {PowerOfX(48 * 8 + 32),
                                                            PowerOfX(48 * 8 - 32),
                                                            PowerOfX(32 * 8 + 32),
                                                            PowerOfX(32 * 8 - 32),
                                                            PowerOfX(16 * 8 + 32),
                                                            PowerOfX(16 * 8 - 32),
                                                            0,
                                                            0};
  const __m512i by = _mm512_load_si512(kOntoLast);
  const __m512i moved = _mm512_xor_si512(_mm512_clmulepi64_epi128(x, by, 0x00),
                                         _mm512_clmulepi64_epi128(x, by, 0x11));
  const __m512i lanes = _mm512_mask_blend_epi64(0xC0, moved, x);
  const __m256i pair =
      _mm256_xor_si256(_mm512_castsi512_si256(lanes), _mm512_extracti64x4_epi64(lanes, 1));
  __m128i v = _mm_xor_si128(_mm256_castsi256_si128(pair), _mm256_extracti128_si256(pair, 1));
  const __m128i low = _mm_setr_epi32(-1, 0, 0, 0);
  const __m128i k =
      _mm_set_epi64x(static_cast<long long>(PowerOfX(96)), static_cast<long long>(PowerOfX(64)));
  const __m128i barrett = _mm_set_epi64x(0x1F7011641, 0x1DB710641);
  v = _mm_xor_si128(_mm_srli_si128(v, 8), _mm_clmulepi64_si128(v, k, 0x10));
  v = _mm_xor_si128(_mm_srli_si128(v, 4), _mm_clmulepi64_si128(_mm_and_si128(v, low), k, 0x00));
  __m128i q = _mm_clmulepi64_si128(_mm_and_si128(v, low), barrett, 0x10);
  q = _mm_clmulepi64_si128(_mm_and_si128(q, low), barrett, 0x00);
  return static_cast<uint32_t>(_mm_extract_epi32(_mm_xor_si128(v, q), 1));
}

// The header with the fields that routers may change set to ones, and the pseudo header in place of
// Ethernet's bytes. Its first four ones are added to the register's initial ones: zero.
inline __m512i MaskedHeader(__m512i header) {
  alignas(kBlock) static constexpr std::array<uint8_t, kBlock> kOnes = [] {
    std::array<uint8_t, kBlock> ones{};
    for (size_t i = 4; i < kIpAt; ++i) ones[i] = 0xFF;
    for (const size_t i : {1, 8, 10, 11, 26, 27, 32}) ones[kIpAt + i] = 0xFF;
    return ones;
  }();
  return _mm512_or_si512(_mm512_maskz_mov_epi8(~__mmask64{0xF}, header),
                         _mm512_load_si512(kOnes.data()));
}

// Continues x over kBytes of `src`, with a copy to `dst` if there is one.
template <size_t kBytes, bool kCopy>
inline __m512i FoldPayload(__m512i x, std::byte* dst, const std::byte* src) {
  static_assert(kBytes % kBlock == 0 && kBytes != 0);
  const auto next = [&](size_t at) {
    const __m512i v = Load(src + at);
    if constexpr (kCopy) Store(dst + at, v);
    return v;
  };
  const __m512i by64 = FoldBy<64>();
  x = Fold(x, by64, next(0));
  if constexpr (kBytes >= 512) {
    const __m512i by256 = FoldBy<256>();
    __m512i x1 = next(64);
    __m512i x2 = next(128);
    __m512i x3 = next(192);
    static_assert(kBytes % 256 == 0);
    for (size_t at = 256; at < kBytes; at += 256) {
      x = Fold(x, by256, next(at));
      x1 = Fold(x1, by256, next(at + 64));
      x2 = Fold(x2, by256, next(at + 128));
      x3 = Fold(x3, by256, next(at + 192));
    }
    return Fold(Fold(Fold(x, by64, x1), by64, x2), by64, x3);
  }
  for (size_t at = kBlock; at < kBytes; at += kBlock) x = Fold(x, by64, next(at));
  return x;
}

inline __m512i WithWords(const HeaderBlock& block, uint32_t psn, uint64_t va) {
  __m512i header = _mm512_load_si512(block.bytes.data());
  header = _mm512_mask_set1_epi32(header, 1u << (kPsnWordAt / 4),
                                  static_cast<int>(__builtin_bswap32(psn)));
  return _mm512_mask_set1_epi64(header, 1u << (kRethAt / 8),
                                static_cast<long long>(__builtin_bswap64(va)));
}

// Makes a frame around `payload`, which has room in front of it. One pass over `src`.
template <size_t kBytes>
inline void MakeFrame(const HeaderBlock& block, uint32_t psn, uint64_t va, const std::byte* src,
                      std::byte* payload) {
  const __m512i header = WithWords(block, psn, va);
  Store(payload - kBlock, header);
  roce::StoreIcrc(payload + kBytes,
                  FoldTo32(FoldPayload<kBytes, true>(MaskedHeader(header), payload, src)));
}

template <size_t kBytes>
inline bool CheckFrame(const std::byte* payload) {
  const __m512i header = MaskedHeader(Load(payload - kBlock));
  return FoldTo32(FoldPayload<kBytes, false>(header, nullptr, payload)) ==
         roce::LoadIcrcState(payload + kBytes);
}

template <size_t kBytes>
inline void CopyWide(std::byte* dst, const std::byte* src) {
  constexpr size_t kStep = kBytes < 256 ? kBytes : 256;
#pragma GCC unroll 1
  for (size_t at = 0; at < kBytes; at += kStep) {
    for (size_t i = 0; i < kStep; i += kBlock) Store(dst + at + i, Load(src + at + i));
  }
}

// Non-temporal stores; dst is 64-byte aligned.
template <size_t kBytes>
inline void CopyAround(std::byte* dst, const std::byte* src) {
  for (size_t at = 0; at < kBytes; at += kBlock) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(dst + at), Load(src + at));
  }
}

#else

template <size_t kBytes>
inline void MakeFrame(const HeaderBlock& block, uint32_t psn, uint64_t va, const std::byte* src,
                      std::byte* payload) {
  std::byte* at = payload - kBlock;
  std::memcpy(at, block.bytes.data(), kBlock);
  roce::StoreBe<uint32_t>(at + kPsnWordAt, psn);
  roce::StoreBe<uint64_t>(at + kRethAt, va);
  roce::StoreIcrc(payload + kBytes, roce::ActiveCrcKernel().masked_copy(at + kIpAt, kBlock - kIpAt,
                                                                        false, src, kBytes, 0));
}

template <size_t kBytes>
inline bool CheckFrame(const std::byte* payload) {
  return roce::ActiveCrcKernel().masked(payload - kBlock + kIpAt, kBlock - kIpAt + kBytes, false) ==
         roce::LoadIcrcState(payload + kBytes);
}

template <size_t kBytes>
inline void CopyWide(std::byte* dst, const std::byte* src) {
  std::memcpy(dst, src, kBytes);
}
template <size_t kBytes>
inline void CopyAround(std::byte* dst, const std::byte* src) {
  std::memcpy(dst, src, kBytes);
}

#endif

}  // namespace roci::bench
