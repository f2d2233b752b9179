#include "tools/top/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>

namespace roci::tools {
namespace {

// ECMA-48 and xterm: alternate screen on and off, cursor hidden and shown, to the first place,
// erase the rest of the line, erase the rest of the screen.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H";
constexpr std::string_view kEraseLine = "\x1b[K";
constexpr std::string_view kEraseBelow = "\x1b[J";

void Print(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

bool Terminal::IsThere() { return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1; }

Terminal::Terminal() {
  tcgetattr(STDIN_FILENO, &before_);
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  // Stopped or aborted by a key, it would leave the terminal as it is.
  raw.c_cc[VSUSP] = raw.c_cc[VQUIT] = _POSIX_VDISABLE;
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  Print(kEnter);
}

Terminal::~Terminal() {
  Print(kLeave);
  tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

TerminalSize Terminal::Size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
    return {24, 80};
  }
  return {size.ws_row, size.ws_col};
}

void Terminal::Draw(const std::vector<std::string>& lines) {
  std::string text(kHome);
  for (size_t i = 0; i < lines.size(); ++i) {
    // First, since the cursor does not leave the last column.
    text += kEraseLine;
    text += lines[i];
    if (i + 1 < lines.size()) text += "\n";
  }
  text += kEraseBelow;
  Print(text);
}

int Terminal::ReadKey() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, 0) <= 0) return 0;
  char key = 0;
  const ssize_t got = read(STDIN_FILENO, &key, 1);
  if (got < 0 && errno == EINTR) return 0;
  return got == 1 ? key : -1;
}

}  // namespace roci::tools
