// The headers of each opcode, including reliable datagrams (RD; IBTA vol 1, 9.2.1, table 38). No
// RoCE device supports RD, so roce/opcode.h does not have it, but a capture may.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "roce/headers.h"
#include "roce/opcode.h"

namespace roci::tools {

// Reliable datagram header, IBTA vol 1, 9.3.
struct Rdeth {
  static constexpr uint32_t kBytes = 4;
  static constexpr uint32_t kOffset = roce::kBthBytes;  // directly after the BTH
  uint8_t reserved8 = 0;
  uint32_t ee_context = 0;  // 24 bits

  static Rdeth Load(const std::byte* p) {
    const auto word = roce::LoadBe<uint32_t>(p);
    return {static_cast<uint8_t>(word >> 24), word & 0xFFFFFF};
  }
};

struct HeaderLayout {
  // Filled for RD as for the others, but `known` stays false: a device drops it.
  roce::OpcodeInfo info;
  bool has_rdeth = false;
  std::string name;

  bool has_headers() const { return info.known || has_rdeth; }
};
HeaderLayout LayoutOf(roce::Opcode opcode);

}  // namespace roci::tools
