// Helpers for small files and directories, for `roci run`.
#include "tools/run/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace roci::tools {

absl::Status WriteFile(const std::string& path, const std::string& content) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  absl::Status status;
  if (!content.empty() &&
      ::write(fd, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  ::close(fd);
  return status;
}

absl::Status ReplaceFile(const std::string& path, const std::string& content) {
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  if (!directory.empty()) std::filesystem::create_directories(directory, error);
  if (error)
    return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot make ", directory.string()));
  const std::string fresh = absl::StrCat(path, ".", ::getpid());
  absl::Status status = WriteFile(fresh, content);
  if (status.ok() && ::rename(fresh.c_str(), path.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("cannot replace ", path));
  }
  if (!status.ok()) ::unlink(fresh.c_str());
  return status;
}

std::string ReadFile(const std::string& path) {
  std::string content(4095, '\0');
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const ssize_t bytes = ::read(fd, content.data(), content.size());
  ::close(fd);
  content.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  return content;
}

bool IsDirectory(const std::string& path) {
  struct stat st;
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

std::vector<std::string> ListDirectory(const std::string& directory) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, int (*)(DIR*)> handle(::opendir(directory.c_str()), ::closedir);
  if (handle == nullptr) return names;
  while (const dirent* entry = ::readdir(handle.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace roci::tools
