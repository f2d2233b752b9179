// Helpers for the requester's tests.
#pragma once

#include <gtest/gtest.h>

#include "tests/unit/roce/qp_host.h"

namespace roci::roce {

inline constexpr uint32_t kMtu = 256;

inline std::vector<Opcode> OpcodesOf(const std::vector<WirePacket>& packets) {
  std::vector<Opcode> opcodes;
  for (const WirePacket& packet : packets) opcodes.push_back(packet.tx.opcode);
  return opcodes;
}

inline void FillMemory(ScriptedHost& host) {
  for (size_t i = 0; i < host.bytes.size(); ++i)
    host.bytes[i] = PayloadByte(static_cast<uint32_t>(i));
}

inline std::vector<std::byte> BytesAt(const ScriptedHost& host, size_t offset, size_t length) {
  return {host.bytes.begin() + static_cast<long>(offset),
          host.bytes.begin() + static_cast<long>(offset + length)};
}

}  // namespace roci::roce
