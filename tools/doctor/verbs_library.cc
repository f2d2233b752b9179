#include "tools/doctor/verbs_library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/doctor/child.h"
#include "tools/run/file.h"
#include "tools/run/find_plugin.h"

namespace roci::tools {
namespace {

using Json = nlohmann::json;

constexpr char kLibrary[] = "libibverbs.so.1";
constexpr int kFirstPrivateAbi = 1;
constexpr int kLastPrivateAbi = 255;

// The functions of libibverbs that are called here. This program does not link it.
struct Verbs {
  void** (*get_device_list)(int* count);
  const char* (*get_device_name)(void* device);
  void* (*open_device)(void* device);
  int (*close_device)(void* context);
};

template <class Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

// Plugins call the function with the number of the ABI that they were built for.
int PrivateAbiOf(void* library) {
  for (int number = kFirstPrivateAbi; number <= kLastPrivateAbi; ++number) {
    const std::string name = absl::StrCat("verbs_register_driver_", number);
    if (dlsym(library, name.c_str()) != nullptr) return number;
  }
  return 0;
}

std::string PathOf(void* library) {
  link_map* map = nullptr;
  char path[PATH_MAX];
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) != 0) return kLibrary;
  return realpath(map->l_name, path) != nullptr ? path : map->l_name;
}

void OpenDevices(const Verbs& verbs, Json& seen) {
  int count = 0;
  void** const devices = verbs.get_device_list(&count);
  if (devices == nullptr) seen["list_error"] = std::strerror(errno);
  for (int i = 0; devices != nullptr && i < count; ++i) {
    const std::string name = verbs.get_device_name(devices[i]);
    void* const context = verbs.open_device(devices[i]);
    if (context == nullptr) {
      seen["failed"].push_back(absl::StrCat(name, ": ", std::strerror(errno)));
    } else {
      seen["opened"].push_back(name);
      verbs.close_device(context);
    }
  }
}

std::string Text(const Json& seen, const char* key) {
  const auto value = seen.find(key);
  return value != seen.end() && value->is_string() ? value->get<std::string>() : "";
}

std::vector<std::string> Texts(const Json& seen, const char* key) {
  std::vector<std::string> texts;
  const auto values = seen.find(key);
  if (values == seen.end() || !values->is_array()) return texts;
  for (const Json& value : *values) {
    if (value.is_string()) texts.push_back(value.get<std::string>());
  }
  return texts;
}

void LookForPlugins(VerbsFacts& facts) {
  const absl::StatusOr<Plugins> plugins = FindPlugins("");
  if (!plugins.ok()) {
    facts.plugin_error = std::string(plugins.status().message());
    return;
  }
  facts.plugin_dir = plugins->Folder();
  facts.plugin_abis = plugins->private_abis;
}

std::string OwnPath() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  return std::string(path, static_cast<size_t>(length < 0 ? 0 : length));
}

}  // namespace

int PrintDevices() {
  Json seen = {{"by_environment", std::getenv("SYSFS_PATH") != nullptr},
               {"opened", Json::array()},
               {"failed", Json::array()}};
  void* const library = dlopen(kLibrary, RTLD_NOW);
  Verbs verbs;
  if (library != nullptr && Find(library, "ibv_get_device_list", verbs.get_device_list) &&
      Find(library, "ibv_get_device_name", verbs.get_device_name) &&
      Find(library, "ibv_open_device", verbs.open_device) &&
      Find(library, "ibv_close_device", verbs.close_device)) {
    seen["library"] = PathOf(library);
    seen["private_abi"] = PrivateAbiOf(library);
    OpenDevices(verbs, seen);
  } else {
    seen["library_error"] = dlerror();
  }
  std::printf("%s\n", seen.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  return 0;
}

VerbsFacts TryVerbs(const std::string& runtime_dir, bool has_daemon) {
  const std::string own = OwnPath();
  std::vector<std::string> command = {own, "doctor", "--print-devices"};
  if (has_daemon) {
    const std::vector<std::string> run = {own, "run", "--runtime-dir", runtime_dir, "--"};
    command.insert(command.begin(), run.begin(), run.end());
  }
  ChildEnd end = RunCommand(command, {"VERBS_LOG_LEVEL=1"});
  VerbsFacts facts;
  facts.has_daemon = has_daemon;
  facts.said = end.signal != 0 ? absl::StrCat("ended by signal ", end.signal) : end.said;
  LookForPlugins(facts);
  Json seen = Json::parse(end.out, nullptr, /*allow_exceptions=*/false);
  if (!seen.is_object() && has_daemon) {  // `roci run` failed: the library alone
    end = RunCommand({own, "doctor", "--print-devices"});
    seen = Json::parse(end.out, nullptr, /*allow_exceptions=*/false);
  }
  if (!seen.is_object()) seen = Json::object();
  facts.library = Text(seen, "library");
  facts.library_error = Text(seen, "library_error");
  facts.version = VersionInName(facts.library);
  facts.private_abi = seen.value("private_abi", 0);
  facts.by_environment = seen.value("by_environment", false);
  if (has_daemon) {
    facts.opened = Texts(seen, "opened");
    facts.failed = Texts(seen, "failed");
  }
  return facts;
}

std::string VersionInName(const std::string& library) {
  const std::vector<std::string> parts = absl::StrSplit(library, '.');
  constexpr size_t kParts = 4;  // "1.14.44.0"
  return parts.size() > kParts ? parts[parts.size() - 2] : "";
}

Finding JudgeLibrary(const VerbsFacts& facts) {
  constexpr char kName[] = "libibverbs";
  if (facts.library.empty()) {
    return Fatal(kName, facts.library_error.empty() ? "cannot be loaded" : facts.library_error,
                 "programs of this system do not start (containers bring their own)",
                 "Debian: apt install libibverbs1 ibverbs-utils");
  }
  const std::string version =
      facts.version.empty() ? "" : absl::StrCat(" of rdma-core ", facts.version);
  if (facts.private_abi == 0) {
    return Fatal(kName, absl::StrCat(facts.library, version, " takes no plugins"),
                 "no program can use a device", "install rdma-core's libibverbs");
  }
  return Ok(kName, absl::StrCat(facts.library, version, ", plugins of ABI ", facts.private_abi));
}

Finding JudgePlugin(const VerbsFacts& facts) {
  constexpr char kName[] = "plugin";
  constexpr char kCost[] = "programs with this libibverbs see no device";
  if (facts.plugin_abis.empty()) {
    return Fatal(kName,
                 facts.plugin_error.empty() ? "no libroci-rdmavN.so in " + facts.plugin_dir
                                            : facts.plugin_error,
                 kCost, "install Rocinante whole, or use roci of the build folder");
  }
  const std::string found =
      absl::StrCat("for ABI ", absl::StrJoin(facts.plugin_abis, ", "), " in ", facts.plugin_dir);
  const auto begin = facts.plugin_abis.begin(), end = facts.plugin_abis.end();
  const bool fits = std::find(begin, end, facts.private_abi) != end;
  if (fits || facts.private_abi == 0) return Ok(kName, found);
  return Fatal(kName, absl::StrCat(found, ", none for ABI ", facts.private_abi), kCost,
               "build Rocinante on this system, or use the libibverbs that it was built for");
}

Finding JudgeDevices(const VerbsFacts& facts) {
  constexpr char kName[] = "devices";
  if (!facts.has_daemon) {
    return Missing(kName, "none without a daemon", "programs find no device", "start rocid");
  }
  if (facts.opened.empty()) {
    std::string found = facts.failed.empty()
                            ? "`roci run` shows none"
                            : absl::StrCat("cannot be opened: ", absl::StrJoin(facts.failed, ", "));
    if (!facts.said.empty()) absl::StrAppend(&found, " (", facts.said, ")");
    return Fatal(kName, found, "programs find no usable device",
                 "mend the findings above; rocid's log names the reason of a refusal");
  }
  const std::string found =
      absl::StrCat(absl::StrJoin(facts.opened, ", "), " open under `roci run`");
  if (!facts.failed.empty()) {
    return Slow(kName, absl::StrCat(found, ", not ", absl::StrJoin(facts.failed, ", ")),
                "these devices cannot be used", "see rocid's log for the reason");
  }
  if (!facts.by_environment) return Ok(kName, found + ", in a mount namespace");
  return Slow(kName, found + ", by SYSFS_PATH and LD_PRELOAD",
              "programs without libibverbs, or that clear their environment, see no device",
              "permit mount namespaces (mount_namespace above)");
}

}  // namespace roci::tools
