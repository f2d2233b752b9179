// Edits lists in environment variables.
#include "tools/run/environment.h"

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace roci::tools {
namespace {

constexpr char kDrivers[] = "RDMAV_DRIVERS";
constexpr char kPreloaded[] = "LD_PRELOAD";
constexpr char kSysfs[] = "SYSFS_PATH";
// Names of files that `roci run` adds to the lists.
constexpr char kDriverName[] = "libroci";
constexpr const char* kPreloadNames[] = {"libroci-preload.so", "libroci-netlink.so"};

// Removes the entries of a list whose last part is `file`. The list changes only if there are some.
void RemoveFromList(const char* name, absl::string_view separators, absl::string_view file) {
  const char* value = std::getenv(name);
  if (value == nullptr) return;
  std::vector<std::string> kept;
  bool removed = false;
  for (const absl::string_view entry : absl::StrSplit(value, absl::ByAnyChar(separators))) {
    const bool is_ours = entry.substr(entry.rfind('/') + 1) == file;
    removed |= is_ours;
    if (!is_ours) kept.emplace_back(entry);
  }
  if (!removed) return;
  if (kept.empty()) {
    ::unsetenv(name);
  } else {
    ::setenv(name, absl::StrJoin(kept, ":").c_str(), 1);
  }
}

}  // namespace

absl::Status Export(const char* name, const std::string& value) {
  if (::setenv(name, value.c_str(), 1) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot set ", name));
}

absl::Status ExportFirst(const char* name, const std::string& value) {
  const char* rest = std::getenv(name);
  return Export(name, rest == nullptr || *rest == '\0' ? value : absl::StrCat(value, ":", rest));
}

void RemoveDevicesFromEnvironment() {
  for (const char* name : kPreloadNames) RemoveFromList(kPreloaded, ": ", name);
  RemoveFromList(kDrivers, ":;", kDriverName);
  ::unsetenv(kSysfs);
}

absl::Status NameDriver(const std::string& driver) { return ExportFirst(kDrivers, driver); }

absl::Status Preload(const std::string& library) { return ExportFirst(kPreloaded, library); }

}  // namespace roci::tools
