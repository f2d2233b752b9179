// Which headers an opcode has, reliable datagrams (RD) with them: no RoCE device serves those, so
// that roce/opcode.h does not know them, but a capture may have them (IBTA vol 1, 9.2.1, table 38).
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
  static constexpr uint32_t kOffset = roce::kBthBytes;  // always the first
  uint8_t reserved8 = 0;
  uint32_t ee_context = 0;  // 24 bits

  static Rdeth Load(const std::byte* p) {
    const auto word = roce::LoadBe<uint32_t>(p);
    return {static_cast<uint8_t>(word >> 24), word & 0xFFFFFF};
  }
};

struct HeaderLayout {
  // With RD as with the others, but that `known` stays false: a device drops it.
  roce::OpcodeInfo info;
  bool has_rdeth = false;
  std::string name;

  bool has_headers() const { return info.known || has_rdeth; }
};
HeaderLayout LayoutOf(roce::Opcode opcode);

}  // namespace roci::tools
