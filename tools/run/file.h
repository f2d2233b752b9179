// Helpers for small files and directories, for `roci run`.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace roci::tools {

// Writes `content` with one write; creates the file (mode 0644) if it is missing.
absl::Status WriteFile(const std::string& path, const std::string& content);

// Writes a new file (mode 0644) and moves it to `path`, whose directory is created if it is
// missing.
absl::Status ReplaceFile(const std::string& path, const std::string& content);

// Up to 4095 bytes; empty if the file cannot be read.
std::string ReadFile(const std::string& path);

bool IsDirectory(const std::string& path);
bool Exists(const std::string& path);

// Names in a directory without . and .., sorted; empty if it cannot be read.
std::vector<std::string> ListDirectory(const std::string& directory);

}  // namespace roci::tools
