// Runs a probe in a child process: it may change its process, be killed or never end.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace roci::tools {

// How a child ended.
struct ChildEnd {
  int status = -1;   // exit status; -1: ended by `signal`, or not started
  int signal = 0;    // the signal that ended it; SIGKILL also after the time limit
  std::string out;   // standard output, at most 1 MiB
  std::string said;  // standard error, at most 1 MiB
};

// Runs `body` in a fork of this process and returns what it returns as the exit status. What
// `body` writes by stdio it has to flush. The calling process must have one thread.
ChildEnd RunInChild(const std::function<int()>& body, int limit_s = 10);

// Runs a program; `command` is its path, or a name in $PATH, and its arguments. `environment`:
// "NAME=VALUE", added to this process's. Exit status 127: not found.
ChildEnd RunCommand(const std::vector<std::string>& command,
                    const std::vector<std::string>& environment = {}, int limit_s = 30);

}  // namespace roci::tools
