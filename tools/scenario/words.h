// Splits command lines of scenarios into words, and fills in their placeholders.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace roci::tools {

// Words are separated by blanks. '...' keeps everything, "..." and a word outside of quotes lose
// backslashes, which keep the next character. InvalidArgument: an open quote, or no word.
absl::StatusOr<std::vector<std::string>> SplitWords(const std::string& line);

// Replaces each {NAME} by what `value` returns for it. NAME begins with a lower-case letter; "${"
// and other braces stay. An error of `value` is returned.
absl::StatusOr<std::string> FillIn(
    const std::string& text,
    const std::function<absl::StatusOr<std::string>(const std::string&)>& value);

}  // namespace roci::tools
