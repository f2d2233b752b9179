#include "tools/scenario/pattern.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace roci::tools {

absl::StatusOr<Pattern> Pattern::Compile(const std::string& text) {
  auto compiled = std::make_unique<regex_t>();
  const int error = regcomp(compiled.get(), text.c_str(), REG_EXTENDED | REG_NEWLINE | REG_NOSUB);
  if (error != 0) {
    char reason[128];
    regerror(error, compiled.get(), reason, sizeof(reason));
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a regular expression: ", reason));
  }
  Pattern out;
  out.text_ = text;
  out.compiled_ = std::shared_ptr<const regex_t>(compiled.release(), [](const regex_t* each) {
    auto* const owned = const_cast<regex_t*>(each);
    regfree(owned);
    delete owned;
  });
  return out;
}

bool Pattern::Matches(const std::string& lines) const {
  // A NUL would end the text.
  if (lines.find('\0') == std::string::npos) {
    return regexec(compiled_.get(), lines.c_str(), 0, nullptr, 0) == 0;
  }
  std::string printable = lines;
  std::ranges::replace(printable, '\0', ' ');
  return regexec(compiled_.get(), printable.c_str(), 0, nullptr, 0) == 0;
}

}  // namespace roci::tools
