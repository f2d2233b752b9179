#include "tools/scenario/library.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "control/config/nearest_name.h"
#include "tools/run/program.h"

namespace roci::tools {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".toml";

std::string OwnFolder() { return fs::path(OwnPath()).parent_path().string(); }

absl::Status NoSuch(const std::string& name, const std::vector<std::string>& files) {
  std::vector<std::string> names;
  for (const std::string& file : files) names.push_back(fs::path(file).stem().string());
  const std::vector<std::string_view> views(names.begin(), names.end());
  return absl::NotFoundError(absl::StrCat(
      name, " is neither a file nor an installed scenario",
      views.empty()
          ? ""
          : absl::StrCat("; the nearest is ", std::string(control::NearestName(name, views)))));
}

}  // namespace

std::string OwnPath() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).string();
}

absl::StatusOr<std::string> LibraryFolder() {
  const std::vector<std::string> folders = {OwnFolder() + "/../scenarios",
                                            OwnFolder() + "/../share/rocinante/scenarios",
                                            ROCI_PREFIX "/" ROCI_DATADIR "/rocinante/scenarios"};
  for (const std::string& folder : folders) {
    std::error_code error;
    const fs::path path = fs::canonical(folder, error);
    if (!error && fs::is_directory(path, error)) return path.string();
  }
  return absl::NotFoundError(
      absl::StrCat("cannot find the scenarios in ", folders[1], " and ", folders[2]));
}

absl::StatusOr<std::vector<std::string>> ScenariosIn(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> out;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == kSuffix) out.push_back(entry.path().string());
  }
  if (error) return absl::NotFoundError(absl::StrCat(folder, ": ", error.message()));
  std::ranges::sort(out);
  return out;
}

absl::StatusOr<std::vector<std::string>> FindScenarios(const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  for (const std::string& argument : arguments) {
    std::error_code ignored;
    const bool is_folder = fs::is_directory(argument, ignored);
    if (!is_folder && (fs::exists(argument, ignored) || absl::EndsWith(argument, kSuffix))) {
      out.push_back(argument);
      continue;
    }
    std::string folder = argument;
    if (!is_folder) {
      const absl::StatusOr<std::string> library = LibraryFolder();
      if (!library.ok()) return library.status();
      folder = *library;
    }
    const absl::StatusOr<std::vector<std::string>> files = ScenariosIn(folder);
    if (!files.ok()) return files.status();
    const std::string file = absl::StrCat(folder, "/", argument, kSuffix);
    if (is_folder || argument == "all") {
      out.insert(out.end(), files->begin(), files->end());
    } else if (std::ranges::find(*files, file) != files->end()) {
      out.push_back(file);
    } else {
      return NoSuch(argument, *files);
    }
  }
  return out;
}

std::string FindRocid() {
  for (const std::string& file : {OwnFolder() + "/rocid", OwnFolder() + "/../control/rocid"}) {
    std::error_code error;
    if (fs::is_regular_file(file, error) && access(file.c_str(), X_OK) == 0) {
      return fs::canonical(file, error).string();
    }
  }
  return FindInPath("rocid");
}

}  // namespace roci::tools
