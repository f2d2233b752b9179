// Masks and declarations of the ICRC kernels. Internal to roce/icrc*.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "roce/icrc.h"
#include "roce/icrc_block.h"

namespace roci::roce::internal {

// The 8 bytes of ones in front of the IP header stand for the masked LRH of an InfiniBand packet.
inline constexpr size_t kPseudoHeaderBytes = 8;

// Entry 64 + i is OR-ed into byte i of pseudo header and packet. The entries before and after are
// zero, so that a block that starts up to 64 bytes before the pseudo header can load its masks at
// once. The first four bytes of the pseudo header stay zero, which is ones XOR the initial state of
// ones: kernels that use the table start with state 0.
using MaskTable = std::array<uint8_t, 192>;

constexpr MaskTable MakeMasks(std::initializer_list<size_t> masked_network_bytes) {
  MaskTable table{};
  for (size_t i = 4; i < kPseudoHeaderBytes; ++i) table[64 + i] = 0xFF;
  for (const size_t i : masked_network_bytes) table[64 + kPseudoHeaderBytes + i] = 0xFF;
  return table;
}

// TOS, TTL, header checksum; UDP checksum; FECN, BECN and reserved of the BTH (IBTA vol 1,
// A17.4.4).
alignas(64) inline constexpr MaskTable kMaskIpv4 = MakeMasks({1, 8, 10, 11, 20 + 6, 20 + 7,
                                                              20 + 8 + 4});

// Traffic class and flow label (all of the first word but the version), hop limit; UDP and BTH as
// above.
alignas(64) inline constexpr MaskTable kMaskIpv6 = [] {
  MaskTable table = MakeMasks({1, 2, 3, 7, 40 + 6, 40 + 7, 40 + 8 + 4});
  table[64 + kPseudoHeaderBytes] = 0x0F;
  return table;
}();

extern const CrcKernel kPortableKernel;
// Whether a kernel runs: the processor has its instructions, and the operating system keeps its
// registers.
#if ROCI_HAS_CLMUL
extern const CrcKernel kClmulKernel;
bool ClmulKernelRuns();
#endif
#if defined(__x86_64__)
extern const CrcKernel kAvx2Kernel;
bool Avx2KernelRuns();
extern const CrcKernel kAvx512Kernel;
bool Avx512KernelRuns();
#endif

}  // namespace roci::roce::internal
