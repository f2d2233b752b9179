// The texts of the personalities that have names (control/config/personalities/), in the program.
#pragma once

#include <cstddef>
#include <string_view>

namespace roci::control {

struct BuiltinPersonality {
  std::string_view name;
  std::string_view text;  // TOML
};

inline constexpr size_t kBuiltinPersonalityCount = 5;
extern const BuiltinPersonality kBuiltinPersonalities[kBuiltinPersonalityCount];

}  // namespace roci::control
