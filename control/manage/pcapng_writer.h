// Appends the blocks of a pcapng file (draft-ietf-opsawg-pcapng) to a string: one interface, times
// in nanoseconds. DPDK's pcapng library only supports DPDK ports, and a wire has none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace roci::control {

// Pure functions. Host byte order, as the format allows.
namespace pcapng {

inline constexpr uint32_t kByteOrderMagic = 0x1A2B3C4D;
inline constexpr uint16_t kLinkTypeEthernet = 1;  // LINKTYPE_ETHERNET

// Types of blocks.
inline constexpr uint32_t kSectionHeader = 0x0A0D0D0A;  // a palindrome: its byte order is no matter
inline constexpr uint32_t kInterfaceDescription = 1;
inline constexpr uint32_t kInterfaceStatistics = 5;
inline constexpr uint32_t kEnhancedPacket = 6;

// Options.
inline constexpr uint16_t kEndOfOptions = 0;
inline constexpr uint16_t kInterfaceTimeResolution = 9;
inline constexpr uint16_t kPacketFlags = 2;

// Section header and interface 0: Ethernet. `snap_length` 0: frames are not truncated.
void AppendHeader(std::string_view interface, uint32_t snap_length, std::string& out);

enum class Direction : uint32_t { kIn = 1, kOut = 2 };
// `time_ns`: since 1970. `original_length`: of the frame, whose first bytes are `bytes`.
void AppendPacket(uint64_t time_ns, Direction direction, std::span<const std::byte> bytes,
                  uint32_t original_length, std::string& out);

// `received`: all frames, dropped ones included.
void AppendStatistics(uint64_t time_ns, uint64_t received, uint64_t dropped, std::string& out);

}  // namespace pcapng
}  // namespace roci::control
