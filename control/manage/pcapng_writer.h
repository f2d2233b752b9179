// The blocks of a pcapng file (draft-ietf-opsawg-pcapng), appended to a string. Of one interface,
// with times in nanoseconds. DPDK's library writes files of its own ports only; a wire has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace roci::control {

// Pure functions. Host byte order, as the format has it.
namespace pcapng {

inline constexpr uint32_t kSectionHeader = 0x0A0D0D0A;
inline constexpr uint32_t kInterfaceDescription = 1;
inline constexpr uint32_t kInterfaceStatistics = 5;
inline constexpr uint32_t kEnhancedPacket = 6;

// Section header and interface 0: Ethernet. `snap_length` 0: frames are whole.
void AppendHeader(std::string_view interface, uint32_t snap_length, std::string& out);

enum class Direction : uint32_t { kIn = 1, kOut = 2 };
// `time_ns` counts from 1970; `original_length` is the frame's, of which `bytes` are kept.
void AppendPacket(uint64_t time_ns, Direction direction, std::span<const std::byte> bytes,
                  uint32_t original_length, std::string& out);

// How many frames there were (kept and dropped) and how many of them were dropped.
void AppendStatistics(uint64_t time_ns, uint64_t received, uint64_t dropped, std::string& out);

}  // namespace pcapng
}  // namespace roci::control
