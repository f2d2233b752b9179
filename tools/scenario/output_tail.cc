#include "tools/scenario/output_tail.h"

#include <algorithm>

#include "absl/strings/ascii.h"

namespace roci::tools {

void OutputTail::Add(std::string_view bytes) {
  text_.append(bytes);
  // In large parts, so that each byte is moved at most once.
  if (text_.size() < 2 * kMostBytes) return;
  const size_t surplus = text_.size() - kMostBytes;
  text_.erase(0, surplus);
  dropped_bytes_ += surplus;
}

std::string OutputTail::LastLine() const {
  constexpr size_t kMostLine = 200;
  size_t end = text_.size();
  while (end > 0 && absl::ascii_isspace(static_cast<unsigned char>(text_[end - 1]))) --end;
  if (end == 0) return "";
  const size_t newline = text_.rfind('\n', end - 1);
  const size_t begin = newline == std::string::npos ? 0 : newline + 1;
  std::string line = text_.substr(begin, std::min(end - begin, kMostLine));
  std::ranges::replace_if(
      line, [](char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)); }, ' ');
  return line;
}

bool OutputTail::Find(const Pattern& pattern, uint64_t& position) const {
  const size_t from = static_cast<size_t>(std::max(position, dropped_bytes_) - dropped_bytes_);
  const std::string news = text_.substr(from);
  const size_t newline = news.rfind('\n');
  // The last line may still grow.
  position = dropped_bytes_ + from + (newline == std::string::npos ? 0 : newline + 1);
  return pattern.Matches(news);
}

}  // namespace roci::tools
