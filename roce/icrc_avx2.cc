// CRC-32 by folding with VPCLMULQDQ in 256-bit vectors, for processors without AVX-512.
#if defined(__x86_64__)

#define ROCI_CRC_TARGET "avx2,vpclmulqdq,pclmul"
#include "roce/icrc_folding_inl.h"

namespace roci::roce::internal {
namespace {

struct Vector256 {
  using Value = __m256i;
  static constexpr size_t kBytes = 32;
  ROCI_CRC_INLINE static Value Load(const std::byte* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  ROCI_CRC_INLINE static void Store(std::byte* p, Value v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v);
  }
  ROCI_CRC_INLINE static Value Broadcast(const Fold& fold) {
    return _mm256_broadcastsi128_si256(Load128(&fold));
  }
  ROCI_CRC_INLINE static Value Xor(Value a, Value b) { return _mm256_xor_si256(a, b); }
  ROCI_CRC_INLINE static Value Step(Value x, Value k, Value block) {
    return Xor(Xor(_mm256_clmulepi64_epi128(x, k, 0x00), _mm256_clmulepi64_epi128(x, k, 0x11)),
               block);
  }
  ROCI_CRC_INLINE static Value Widen(__m128i x) { return _mm256_zextsi128_si256(x); }
  ROCI_CRC_INLINE static __m128i Narrow(Value v) {
    return Step128(_mm256_castsi256_si128(v), Load128(&kBy16), _mm256_extracti128_si256(v, 1));
  }
};
using Kernel = FoldingKernel<Vector256>;

}  // namespace

bool Avx2KernelRuns() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq") &&
         __builtin_cpu_supports("pclmul");
}

const CrcKernel kAvx2Kernel = {"avx2-vpclmulqdq", Kernel::Update, Kernel::CopyUpdate,
                               Kernel::Masked, Kernel::MaskedCopy};

}  // namespace roci::roce::internal

#endif  // defined(__x86_64__)
