// Recorded captures as frames in memory that a test can change, and the judge's findings about
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "roce/opcode.h"
#include "tools/judge/judge.h"

namespace roci::tools::judge {

struct Captured {
  std::vector<std::byte> bytes;
  int64_t time_ns = 0;
  uint32_t original_length = 0;

  std::byte* ip() { return bytes.data() + 14; }
  std::byte* udp() { return ip() + 20; }
  std::byte* bth() { return udp() + 8; }
  // Payload of a datagram to queue pair 1.
  std::byte* mad() { return bth() + 20; }
};
using Frames = std::vector<Captured>;

// Of tests/vectors: Ethernet and IPv4 without tags.
Frames LoadVector(const std::string& name);

// The index of the n-th frame (from 0) with the opcode.
size_t IndexOf(Frames& frames, roce::Opcode opcode, size_t n = 0);
Captured& FrameOf(Frames& frames, roce::Opcode opcode, size_t n = 0);
// Sets a field of PacketFields() and the right ICRC.
void SetField(Captured& frame, std::string_view name, uint64_t value);
uint64_t GetField(Captured& frame, std::string_view name);
// The right IPv4 checksum and ICRC.
void Seal(Captured& frame);

void JudgeAll(const Frames& frames, Judge& judge, uint64_t dropped = 0);
// "rule" or "rule?" (unsure) for each rule that was broken, sorted.
std::vector<std::string> NamesOf(const Judge& judge);
// Those that are violations.
std::vector<std::string> ViolationsOf(const Judge& judge);

}  // namespace roci::tools::judge
