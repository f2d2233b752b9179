#include "tools/scenario/words.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace roci::tools {

absl::StatusOr<std::vector<std::string>> SplitWords(const std::string& line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;  // the open one
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && absl::ascii_isspace(static_cast<unsigned char>(c))) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == '\\' && quote != '\'' && i + 1 < line.size()) {
      words.back().push_back(line[++i]);
    } else if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? char{0} : c;
    } else {
      words.back().push_back(c);
    }
  }
  if (quote != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the quote ", std::string(1, quote), " is open"));
  }
  if (words.empty()) return absl::InvalidArgumentError("there is no word");
  return words;
}

absl::StatusOr<std::string> FillIn(
    const std::string& text,
    const std::function<absl::StatusOr<std::string>(const std::string&)>& value) {
  std::string out;
  size_t done = 0;
  for (size_t open = text.find('{'); open != std::string::npos; open = text.find('{', open + 1)) {
    const size_t close = text.find('}', open);
    if (close == std::string::npos) break;
    const bool is_shells = open > 0 && text[open - 1] == '$';
    if (is_shells || !absl::ascii_islower(static_cast<unsigned char>(text[open + 1]))) continue;
    const absl::StatusOr<std::string> filled = value(text.substr(open + 1, close - open - 1));
    if (!filled.ok()) return filled.status();
    absl::StrAppend(&out, text.substr(done, open - done), *filled);
    done = close + 1;
    open = close;
  }
  return out + text.substr(done);
}

}  // namespace roci::tools
