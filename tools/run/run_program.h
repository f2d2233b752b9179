// Starts a program with the daemon's devices visible at their ordinary paths in /sys and /dev: in a
// private mount namespace, or, if those are refused, by environment variables.
#pragma once

#include <string>
#include <vector>

namespace roci::tools {

struct RunOptions {
  std::string runtime_dir;           // --runtime-dir; empty: see abi::RuntimeDir
  std::string plugin;                // path of one plugin; empty: see FindPlugins
  double wait_s = 0;                 // how long to wait for the daemon
  bool verbose = false;              // print on standard error which method is used
  bool require_namespace = false;    // fail instead of using the environment
  bool no_namespace = false;         // use the environment
  bool no_netlink = false;           // do not answer RDMA netlink
  std::vector<std::string> command;  // program and arguments, at least the program
};

// Replaces the calling process with the program (same pid, uid, gid, working directory, descriptors
// and terminal). Returns only on failure, with the exit status, after one message on standard
// error: 125 the devices could not be made visible, 126 the program cannot be executed, 127 it does
// not exist. The calling process must have one thread.
int RunProgram(const RunOptions& options);

}  // namespace roci::tools
