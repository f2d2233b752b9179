// The terminal of `roci top`: keys without Enter, a screen that is drawn anew.
#pragma once

#include <termios.h>

#include <cstddef>
#include <string>
#include <vector>

namespace roci::tools {

struct TerminalSize {
  size_t lines;
  size_t columns;
};

// While it exists, the terminal of standard input gives keys at once and does not echo them, and
// standard output shows the alternate screen. Both must be terminals.
class Terminal {
 public:
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Whether standard input and output are terminals.
  static bool IsThere();
  static TerminalSize Size();
  // Draws the screen anew.
  static void Draw(const std::vector<std::string>& lines);
  // Returns the next key that was pressed, without waiting. 0: none was; -1: the terminal was
  // closed.
  static int ReadKey();

 private:
  termios before_{};
};

}  // namespace roci::tools
