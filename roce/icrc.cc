// Chooses the CRC kernel.
#include "roce/icrc.h"

#include <array>

#include "roce/icrc_kernels.h"

namespace roci::roce {
namespace {

struct KernelList {
  std::array<const CrcKernel*, 4> kernels{};
  size_t count = 0;
};

KernelList FindKernels() {
  KernelList list;
  list.kernels[list.count++] = &internal::kPortableKernel;
#if ROCI_HAS_CLMUL
  if (internal::ClmulKernelRuns()) list.kernels[list.count++] = &internal::kClmulKernel;
#endif
#if defined(__x86_64__)
  if (internal::Avx2KernelRuns()) list.kernels[list.count++] = &internal::kAvx2Kernel;
  if (internal::Avx512KernelRuns()) list.kernels[list.count++] = &internal::kAvx512Kernel;
#endif
  return list;
}

}  // namespace

std::span<const CrcKernel* const> AvailableCrcKernels() {
  static const KernelList list = FindKernels();
  return {list.kernels.data(), list.count};
}

namespace internal {

constinit const CrcKernel* active_crc_kernel = &kPortableKernel;

namespace {
[[maybe_unused]] const bool kKernelChosen = [] {
  active_crc_kernel = AvailableCrcKernels().back();
  return true;
}();
}  // namespace

}  // namespace internal
}  // namespace roci::roce
