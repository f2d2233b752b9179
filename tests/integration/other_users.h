// Lets programs of other users connect to the daemon of a test.
#pragma once

#include <sys/stat.h>

#include <filesystem>

#include "verbs_provider/abi/runtime_dir.h"

namespace roci::testing {

// By default only root can access the test's folders. Returns the one that has the runtime folder.
inline std::filesystem::path LetOtherUsersIn() {
  const std::filesystem::path run(abi::RuntimeDir(nullptr, abi::RuntimeDirUse::kConnect));
  chmod(run.c_str(), 0711);
  chmod(run.parent_path().c_str(), 0711);
  return run.parent_path();
}

}  // namespace roci::testing
