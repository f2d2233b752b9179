// Extended regular expressions, as of grep -E: each line is matched alone.
#pragma once

#include <regex.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace roci::tools {

class Pattern {
 public:
  // InvalidArgument: not a regular expression, with the reason.
  static absl::StatusOr<Pattern> Compile(const std::string& text);

  // Whether a line of `lines` contains a match.
  bool Matches(const std::string& lines) const;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::shared_ptr<const regex_t> compiled_;
};

}  // namespace roci::tools
