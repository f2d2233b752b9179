// Finds scenarios: files, folders, and those that are installed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace roci::tools {

// The folder of the scenarios of this program's build tree or installation.
absl::StatusOr<std::string> LibraryFolder();

// The scenario files (*.toml) of a folder, sorted.
absl::StatusOr<std::vector<std::string>> ScenariosIn(const std::string& folder);

// The files that arguments name: a file, a folder with all its scenarios, the name of an installed
// scenario, or "all" for these. NotFound, with the nearest name.
absl::StatusOr<std::vector<std::string>> FindScenarios(const std::vector<std::string>& arguments);

// rocid, beside this program or in its build tree, else in $PATH; empty: there is none.
std::string FindRocid();
// This program's path.
std::string OwnPath();

}  // namespace roci::tools
