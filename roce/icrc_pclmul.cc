// CRC-32 by folding with PCLMULQDQ, for processors without AVX.
#if defined(__x86_64__)

#define ROCI_CRC_TARGET "sse4.1,pclmul"
#include "roce/icrc_folding_inl.h"

namespace roci::roce::internal {
namespace {

struct Vector128 {
  using Value = __m128i;
  static constexpr size_t kBytes = 16;
  ROCI_CRC_INLINE static Value Load(const std::byte* p) { return Load128(p); }
  ROCI_CRC_INLINE static void Store(std::byte* p, Value v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), v);
  }
  ROCI_CRC_INLINE static Value Broadcast(const Fold& fold) { return Load128(&fold); }
  ROCI_CRC_INLINE static Value Xor(Value a, Value b) { return _mm_xor_si128(a, b); }
  ROCI_CRC_INLINE static Value Step(Value x, Value k, Value block) { return Step128(x, k, block); }
  ROCI_CRC_INLINE static Value Widen(__m128i x) { return x; }
  ROCI_CRC_INLINE static __m128i Narrow(Value v) { return v; }
};
using Kernel = FoldingKernel<Vector128>;

}  // namespace

bool PclmulKernelRuns() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul");
}

const CrcKernel kPclmulKernel = {"pclmulqdq", Kernel::Update, Kernel::CopyUpdate, Kernel::Masked,
                                 Kernel::MaskedCopy};

}  // namespace roci::roce::internal

#endif  // defined(__x86_64__)
