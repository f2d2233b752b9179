// Lists the mounts and variables with which libibverbs in a container finds the devices.
#include "tools/run/cdi.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tools/run/file.h"
#include "verbs_provider/abi/runtime_dir.h"
#include "verbs_provider/abi/stand_in.h"

namespace roci::tools {
namespace {

using Json = nlohmann::ordered_json;

Json Mount(const std::string& from, const std::string& to, const char* access) {
  return {{"hostPath", from}, {"containerPath", to}, {"options", {"rbind", access, "nosuid"}}};
}

// The placeholder of a character device, as a bind mount: containers of ordinary users cannot have
// device nodes.
Json NodeMount(const std::string& node) {
  return {{"hostPath", abi::kStandInPath},
          {"containerPath", absl::StrCat("/dev/infiniband/", node)},
          {"options", {"bind", "rw", "nosuid"}}};
}

// The name in class/infiniband of class/infiniband_verbs/NODE.
std::string DeviceOf(const std::string& verbs_class, const std::string& node) {
  std::string name = ReadFile(absl::StrCat(verbs_class, "/", node, "/ibdev"));
  name.erase(std::find(name.begin(), name.end(), '\n'), name.end());
  return name;
}

// Mounts of the parts of the tree that all devices have in common.
Json CommonOfTree(const std::string& live) {
  Json mounts = Json::array();
  for (const char* name : {"infiniband_verbs/abi_version", "misc/rdma_cm"}) {
    if (!Exists(absl::StrCat(live, "/", name))) continue;
    mounts.push_back(
        Mount(absl::StrCat(live, "/", name), absl::StrCat(kCdiSysfs, "/class/", name), "ro"));
  }
  return mounts;
}

struct Device {
  std::string name, node;
};

// Containers with some of the devices get a directory of the tree for each; it is no longer the
// daemon's after the daemon has been started again.
Json OneDevice(const std::string& live, const Device& device) {
  Json mounts = CommonOfTree(live);
  for (const std::string& name :
       {absl::StrCat("infiniband/", device.name), absl::StrCat("infiniband_verbs/", device.node)}) {
    mounts.push_back(
        Mount(absl::StrCat(live, "/", name), absl::StrCat(kCdiSysfs, "/class/", name), "ro"));
  }
  mounts.push_back(NodeMount(device.node));
  return {{"name", device.name}, {"containerEdits", {{"mounts", mounts}}}};
}

Json AllDevices(const std::string& sysfs, const std::vector<Device>& devices) {
  Json mounts = Json::array({Mount(sysfs, kCdiSysfs, "ro")});
  for (const Device& device : devices) mounts.push_back(NodeMount(device.node));
  return {{"name", kCdiAll}, {"containerEdits", {{"mounts", mounts}}}};
}

Json EveryContainer(const CdiSource& source, const std::string& live) {
  Json mounts = Json::array({Mount(source.runtime_dir, source.runtime_dir, "ro")});
  const std::string name = source.plugins.driver.substr(source.plugins.driver.rfind('/'));
  for (const int number : source.plugins.private_abis) {
    const std::string file = absl::StrCat("-rdmav", number, ".so");
    mounts.push_back(
        Mount(source.plugins.driver + file, absl::StrCat(kCdiPlugins, name, file), "ro"));
  }
  if (Exists(live + "/misc/rdma_cm")) mounts.push_back(NodeMount("rdma_cm"));
  return {
      {"env",
       {absl::StrCat("SYSFS_PATH=", kCdiSysfs), absl::StrCat("RDMAV_DRIVERS=", kCdiPlugins, name),
        absl::StrCat(abi::kRuntimeDirVariable, "=", source.runtime_dir)}},
      {"mounts", mounts}};
}

}  // namespace

absl::StatusOr<std::string> CdiFile(const CdiSource& source) {
  const std::string sysfs = abi::SysfsPath(source.runtime_dir);
  const std::string live = sysfs + "/class";
  const std::string verbs_class = live + "/infiniband_verbs";
  std::vector<Device> devices;
  for (const std::string& node : ListDirectory(verbs_class)) {
    if (!IsDirectory(absl::StrCat(verbs_class, "/", node))) continue;
    devices.push_back({DeviceOf(verbs_class, node), node});
  }
  if (devices.empty()) {
    return absl::NotFoundError(
        absl::StrCat("the daemon at ", source.runtime_dir, " has no device in its tree ", sysfs));
  }
  Json entries = Json::array();
  for (const Device& device : devices) entries.push_back(OneDevice(live, device));
  entries.push_back(AllDevices(sysfs, devices));
  const Json file = {{"cdiVersion", "0.3.0"},
                     {"kind", kCdiKind},
                     {"devices", entries},
                     {"containerEdits", EveryContainer(source, live)}};
  return file.dump(2) + "\n";
}

}  // namespace roci::tools
