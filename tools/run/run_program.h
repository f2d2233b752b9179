// Starts a program so that it finds the daemon's devices as ordinary paths below /sys and /dev: in
// a private mount namespace, or, where those are refused, by environment variables.
#pragma once

#include <string>
#include <vector>

namespace roci::tools {

struct RunOptions {
  std::string runtime_dir;  // as --runtime-dir; empty: decided by abi::RuntimeDir
  std::string plugin;       // path of libroci-rdmavN.so; empty: looked for beside this program
  bool verbose = false;     // say on standard error which way was taken
  bool require_namespace = false;    // fail rather than fall back
  bool no_namespace = false;         // go straight to the fallback
  std::vector<std::string> command;  // program and arguments, at least the program
};

// Replaces the calling process by the program (same pid, uid, gid, working directory, descriptors
// and terminal). Returns only if that failed, with the exit status to end with, after one message
// on standard error: 125 the devices could not be shown, 126 the program cannot be executed, 127
// there is no such program. Must be called by a process with one thread.
int RunProgram(const RunOptions& options);

}  // namespace roci::tools
