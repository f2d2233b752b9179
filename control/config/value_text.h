// Values as people write them, in options and in the configuration: numbers, times, probabilities,
// opcodes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace roci::control {

// The largest number that all JSON implementations represent exactly (RFC 8259, 6).
inline constexpr uint64_t kMostInJson = uint64_t{1} << 53;

// "17" or "0x11", at most `most`.
std::optional<uint64_t> ParseNumber(const std::string& text, uint64_t most);
// "1%", "0.01": from 0 to 1.
std::optional<double> ParseChance(const std::string& text);
// "10us", "1.5ms", "200ns", "1s": nanoseconds, at most `most_ns` (less than 2^53).
std::optional<uint64_t> ParseDuration(const std::string& text, uint64_t most_ns);
// Opcodes that match "0x11", "RC_ACKNOWLEDGE" or "*_READ_*" (case-insensitive); empty: none.
std::vector<uint32_t> FindOpcodes(const std::string& text);

struct UnitOfText {
  std::string_view name;
  double scale;
};
// "1.5ms": a number and one of the units, at most `most` of the smallest.
std::optional<uint64_t> ParseQuantity(const std::string& text,
                                      std::initializer_list<UnitOfText> units, double most);

}  // namespace roci::control
