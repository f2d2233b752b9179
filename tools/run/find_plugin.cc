// Finds the libibverbs provider.
#include "tools/run/find_plugin.h"

#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/run/file.h"

namespace roci::tools {
namespace {

std::string OwnDirectory() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0) return ".";
  const std::string whole(path, static_cast<size_t>(length));
  return whole.substr(0, whole.rfind('/'));
}

bool IsPlugin(const std::string& name) {
  return absl::StartsWith(name, "libroci-rdmav") && absl::EndsWith(name, ".so");
}

}  // namespace

absl::StatusOr<std::string> FindPlugin(const std::string& given) {
  if (!given.empty()) {
    char resolved[PATH_MAX];
    if (::realpath(given.c_str(), resolved) == nullptr || ::access(resolved, R_OK) != 0) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the plugin ", given));
    }
    return std::string(resolved);
  }
  const std::string own = OwnDirectory();
  const std::vector<std::string> directories = {own + "/../verbs_provider",
                                                own + "/../" ROCI_LIBDIR "/libibverbs",
                                                ROCI_PREFIX "/" ROCI_LIBDIR "/libibverbs"};
  for (const std::string& directory : directories) {
    for (const std::string& name : ListDirectory(directory)) {
      if (IsPlugin(name)) return FindPlugin(absl::StrCat(directory, "/", name));
    }
  }
  return absl::NotFoundError(absl::StrCat("cannot find libroci-rdmav*.so in ",
                                          absl::StrJoin(directories, ", "),
                                          " (name it with --plugin)"));
}

absl::StatusOr<std::vector<std::string>> FindPlugins(const std::string& given) {
  const absl::StatusOr<std::string> first = FindPlugin(given);
  if (!first.ok()) return first.status();
  std::vector<std::string> plugins = {*first};
  const std::string directory = first->substr(0, first->rfind('/'));
  for (const std::string& name : ListDirectory(directory)) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (IsPlugin(name) && path != *first) plugins.push_back(path);
  }
  return plugins;
}

}  // namespace roci::tools
