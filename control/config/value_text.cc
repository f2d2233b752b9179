#include "control/config/value_text.h"

#include <fnmatch.h>
#include <strings.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "roce/opcode.h"

namespace roci::control {

std::optional<uint64_t> ParseNumber(const std::string& text, uint64_t most) {
  uint64_t value = 0;
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  const bool is_number =
      is_hex ? absl::SimpleHexAtoi(text, &value) : absl::SimpleAtoi(text, &value);
  if (!is_number || value > most) return std::nullopt;
  return value;
}

std::optional<double> ParseChance(const std::string& text) {
  const bool is_percent = text.ends_with('%');
  double value = 0;
  if (!absl::SimpleAtod(is_percent ? text.substr(0, text.size() - 1) : text, &value)) {
    return std::nullopt;
  }
  if (is_percent) value /= 100;
  if (!(value >= 0 && value <= 1)) return std::nullopt;
  return value;
}

std::optional<uint64_t> ParseDuration(const std::string& text, uint64_t most_ns) {
  return ParseQuantity(text, {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}},
                       static_cast<double>(most_ns));
}

std::vector<uint32_t> FindOpcodes(const std::string& text) {
  if (const auto number = ParseNumber(text, 255)) return {static_cast<uint32_t>(*number)};
  const bool is_ack = strcasecmp(text.c_str(), "ACK") == 0;  // as `roci trace` prints it
  std::vector<uint32_t> found;
  for (uint32_t opcode = 0; opcode < roce::kOpcodeTable.size(); ++opcode) {
    const roce::OpcodeInfo& info = roce::kOpcodeTable[opcode];
    const bool is_named = is_ack ? info.operation == roce::Operation::kAcknowledge
                                 : fnmatch(text.c_str(), info.name, FNM_CASEFOLD) == 0;
    if (info.known && is_named) found.push_back(opcode);
  }
  return found;
}

std::optional<uint64_t> ParseQuantity(const std::string& text,
                                      std::initializer_list<UnitOfText> units, double most) {
  const size_t unit_at = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view name = std::string_view(text).substr(unit_at);
  const auto* const unit = std::find_if(units.begin(), units.end(),
                                        [&](const UnitOfText& each) { return each.name == name; });
  double value = 0;
  if (unit == units.end() || !absl::SimpleAtod(text.substr(0, unit_at), &value)) {
    return std::nullopt;
  }
  if (!(value * unit->scale <= most)) return std::nullopt;
  return static_cast<uint64_t>(std::llround(value * unit->scale));
}

}  // namespace roci::control
