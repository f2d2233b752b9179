// Small files and directories, for the launcher.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace roci::tools {

// Writes `content` with one write, creating the file (mode 0644) where it is missing.
absl::Status WriteFile(const std::string& path, const std::string& content);

bool IsDirectory(const std::string& path);
bool Exists(const std::string& path);

// Names in a directory without . and .., sorted; empty where it cannot be read.
std::vector<std::string> ListDirectory(const std::string& directory);

}  // namespace roci::tools
