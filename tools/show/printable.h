// Makes foreign text fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace roci::tools {

// Control characters (C0, DEL and, in UTF-8, C1) become '?': names of programs may have any.
inline std::string Printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool is_c1 = byte == 0xC2 && next >= 0x80 && next < 0xA0;
    if (is_c1) ++i;
    out += byte < 0x20 || byte == 0x7F || is_c1 ? '?' : text[i];
  }
  return out;
}

// At most `bytes` bytes, in whole characters of UTF-8.
inline void CutText(std::string& text, size_t bytes) {
  if (text.size() <= bytes) return;
  while (bytes != 0 && (static_cast<unsigned char>(text[bytes]) & 0xC0) == 0x80) --bytes;
  text.resize(bytes);
}

}  // namespace roci::tools
