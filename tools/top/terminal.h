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
  // Replaces what the screen shows.
  static void Draw(const std::vector<std::string>& lines);
  // A key that is there. 0: none; -1: the terminal has gone.
  static int ReadKey();

 private:
  termios before_{};
};

}  // namespace roci::tools
