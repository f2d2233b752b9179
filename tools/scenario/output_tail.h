// The last output of a program, and whether a line of it matched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/scenario/pattern.h"

namespace roci::tools {

class OutputTail {
 public:
  static constexpr size_t kMostBytes = size_t{256} << 10;

  void Add(std::string_view bytes);
  // At most the last kMostBytes.
  const std::string& text() const { return text_; }
  // Of the output that was dropped before them.
  uint64_t dropped_bytes() const { return dropped_bytes_; }
  uint64_t all_bytes() const { return dropped_bytes_ + text_.size(); }

  // The last line that is not empty, without control characters, at most 200 bytes.
  std::string LastLine() const;

  // Looks for a line that matches, each line once. `position`: where the last look ended (0 at the
  // first); changed.
  bool Find(const Pattern& pattern, uint64_t& position) const;

 private:
  std::string text_;
  uint64_t dropped_bytes_ = 0;
};

}  // namespace roci::tools
