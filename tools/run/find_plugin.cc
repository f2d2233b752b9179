// Finds the plugins.
#include "tools/run/find_plugin.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "tools/run/file.h"

namespace roci::tools {
namespace {

constexpr char kSuffix[] = "-rdmav";

std::string OwnDirectory() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  if (length <= 0) return ".";
  const std::string whole(path, static_cast<size_t>(length));
  return whole.substr(0, whole.rfind('/'));
}

// N of the file name NAME-rdmavN.so; 0 if it is another name.
int NumberIn(absl::string_view file, absl::string_view name) {
  int number = 0;
  return absl::ConsumePrefix(&file, name) && absl::ConsumePrefix(&file, kSuffix) &&
                 absl::ConsumeSuffix(&file, ".so") && absl::SimpleAtoi(file, &number)
             ? number
             : 0;
}

// The plugins NAME-rdmavN.so in `folder`.
Plugins PluginsIn(const std::string& folder, const std::string& name) {
  Plugins plugins;
  plugins.driver = absl::StrCat(folder, "/", name);
  for (const std::string& file : ListDirectory(folder)) {
    const int number = NumberIn(file, name);
    if (number != 0 && ::access(absl::StrCat(folder, "/", file).c_str(), R_OK) == 0) {
      plugins.private_abis.push_back(number);
    }
  }
  std::sort(plugins.private_abis.begin(), plugins.private_abis.end());
  return plugins;
}

absl::StatusOr<Plugins> PluginsBeside(const std::string& given) {
  char resolved[PATH_MAX];
  if (::realpath(given.c_str(), resolved) == nullptr || ::access(resolved, R_OK) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot read the plugin ", given));
  }
  const std::string path(resolved);
  const size_t slash = path.rfind('/');
  const std::string file = path.substr(slash + 1);
  const std::string name = file.substr(0, std::min(file.rfind(kSuffix), file.size()));
  if (NumberIn(file, name) == 0) {
    return absl::InvalidArgumentError(absl::StrCat(given, " is not named libroci-rdmavN.so"));
  }
  return PluginsIn(path.substr(0, slash), name);
}

}  // namespace

bool Plugins::Has(int private_abi) const {
  return std::binary_search(private_abis.begin(), private_abis.end(), private_abi);
}

std::string Plugins::Folder() const { return driver.substr(0, driver.rfind('/')); }

absl::StatusOr<Plugins> FindPlugins(const std::string& given) {
  if (!given.empty()) return PluginsBeside(given);
  const std::string own = OwnDirectory();
  const std::vector<std::string> directories = {own + "/../verbs_provider",
                                                own + "/../" ROCI_LIBDIR "/libibverbs",
                                                ROCI_PREFIX "/" ROCI_LIBDIR "/libibverbs"};
  for (const std::string& directory : directories) {
    char resolved[PATH_MAX];
    if (::realpath(directory.c_str(), resolved) == nullptr) continue;
    Plugins plugins = PluginsIn(resolved, "libroci");
    if (!plugins.private_abis.empty()) return plugins;
  }
  return absl::NotFoundError(absl::StrCat("cannot find libroci-rdmav*.so in ",
                                          absl::StrJoin(directories, ", "),
                                          " (name one with --plugin)"));
}

}  // namespace roci::tools
