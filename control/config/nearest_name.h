// Which of some names is most like a wrong one, for error messages.
#pragma once

#include <span>
#include <string_view>

namespace roci::control {

// The name that needs the fewest insertions and removals of characters; the first of several.
// `names` is not empty.
std::string_view NearestName(std::string_view wrong, std::span<const std::string_view> names);

}  // namespace roci::control
