// Whether the libibverbs of this system finds and opens the devices, tried with `roci run`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/doctor/finding.h"

namespace roci::tools {

// Observations of a program with this system's libibverbs.
struct VerbsFacts {
  std::string library;  // path of libibverbs.so.1; empty: not found
  std::string library_error;
  int private_abi = 0;       // of its plugins; 0: not known
  std::string plugin_error;  // why no plugin was found
  std::string plugin_dir;
  std::vector<int> plugin_abis;  // libroci-rdmavN.so in that directory
  std::string version;           // of rdma-core, by the library's name; empty: not known

  bool has_daemon = false;          // devices were looked for
  bool by_environment = false;      // `roci run` had no mount namespace
  std::vector<std::string> opened;  // names of rocid's devices
  std::vector<std::string> failed;  // "roci0: Operation not permitted"
  std::string said;                 // what `roci run` or the library printed, if no device opened
};

// Looks for devices only if `has_daemon`.
VerbsFacts TryVerbs(const std::string& runtime_dir, bool has_daemon);

// The program of TryVerbs: opens all devices by libibverbs and prints what it saw, as JSON.
int PrintDevices();

// Pure.
Finding JudgeLibrary(const VerbsFacts& facts);
Finding JudgePlugin(const VerbsFacts& facts);
Finding JudgeDevices(const VerbsFacts& facts);
// "44" for ".../libibverbs.so.1.14.44.0"
std::string VersionInName(const std::string& library);

}  // namespace roci::tools
