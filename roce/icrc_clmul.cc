// CRC-32 by folding in 128-bit registers: x86 without AVX, and arm64.
#include "roce/icrc_block.h"

#if ROCI_HAS_CLMUL

#define ROCI_CRC_TARGET ROCI_CLMUL_TARGET
#include "roce/icrc_folding_inl.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace roci::roce::internal {
namespace {

struct Vector128 {
  using Value = Block;
  static constexpr size_t kBytes = 16;
  ROCI_CRC_INLINE static Value Load(const std::byte* p) { return Load128(p); }
  ROCI_CRC_INLINE static void Store(std::byte* p, Value v) { Store128(p, v); }
  ROCI_CRC_INLINE static Value Broadcast(const Fold& fold) { return Load128(&fold); }
  ROCI_CRC_INLINE static Value Xor(Value a, Value b) { return Xor128(a, b); }
  ROCI_CRC_INLINE static Value Step(Value x, Value k, Value block) { return Step128(x, k, block); }
  ROCI_CRC_INLINE static Value Widen(Block x) { return x; }
  ROCI_CRC_INLINE static Block Narrow(Value v) { return v; }
};
using Kernel = FoldingKernel<Vector128>;

}  // namespace

#if defined(__x86_64__)
constexpr char kName[] = "pclmulqdq";
bool ClmulKernelRuns() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul");
}
#else
constexpr char kName[] = "pmull";
bool ClmulKernelRuns() { return (getauxval(AT_HWCAP) & HWCAP_PMULL) != 0; }
#endif

const CrcKernel kClmulKernel = {kName, Kernel::Update, Kernel::CopyUpdate, Kernel::Masked,
                                Kernel::MaskedCopy};

}  // namespace roci::roce::internal

#endif  // ROCI_HAS_CLMUL
