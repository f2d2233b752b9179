// Finds the plugins, libibverbs' providers.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace roci::tools {

/// The plugins lie side by side; libibverbs takes the one of its private ABI number.
struct Plugins {
  std::string driver;  // absolute path of each without "-rdmavN.so", as libibverbs takes it
  std::vector<int> private_abis;  // N of each, sorted

  bool Has(int private_abi) const;
  std::string Folder() const;
};

/// The plugins beside `given`, the path of one, if not empty; else those in this program's build
/// tree or installation prefix, else in the configured library directory. They must be readable by
/// the caller.
absl::StatusOr<Plugins> FindPlugins(const std::string& given);

}  // namespace roci::tools
