#include "tools/run/netlink_shim.h"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/run/environment.h"

namespace roci::tools {
namespace {

constexpr char kName[] = "libroci-netlink.so";

std::optional<std::string> CanonicalPath(const std::string& path) {
  char resolved[PATH_MAX];
  if (::access(path.c_str(), R_OK) != 0 || ::realpath(path.c_str(), resolved) == nullptr) {
    return std::nullopt;
  }
  return std::string(resolved);
}

}  // namespace

absl::Status PreloadNetlinkShim(const std::string& folder) {
  const std::optional<std::string> path = CanonicalPath(absl::StrCat(folder, "/", kName));
  if (!path) return absl::NotFoundError(absl::StrCat("cannot find ", kName, " in ", folder));
  if (path->find_first_of(" :;\t\n") != std::string::npos) {
    return absl::NotFoundError(
        absl::StrCat("a preloaded library's path must be free of spaces, ':' and ';': ", *path));
  }
  const absl::Status status = Preload(*path);
  if (!status.ok()) return status;
  // A program's AddressSanitizer ends the program if any library is in front of its own.
  return ExportFirst("ASAN_OPTIONS", "verify_asan_link_order=0");
}

}  // namespace roci::tools
