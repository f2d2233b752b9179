// A file of the tree is changed by renaming a new file over it: readers saw writes in place
// half-done (about one read in 10^5 under load).
#include "control/sysfs/sysfs_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "control/loop/unique_fd.h"
#include "verbs_provider/abi/stand_in.h"

namespace roci::control {
namespace {

namespace stdfs = std::filesystem;

constexpr std::string_view kInfiniband = "class/infiniband";
constexpr std::string_view kVerbs = "class/infiniband_verbs";
constexpr std::string_view kRdmaCm = "class/misc/rdma_cm";
// Devices are built and removed here, and new values are written here, invisible to programs.
constexpr std::string_view kStaging = ".staging";
// IB_USER_VERBS_MAX_ABI_VERSION and RDMA_USER_CM_MAX_ABI_VERSION of the kernel interface.
constexpr std::string_view kVerbsAbi = "6\n";
constexpr std::string_view kRdmaCmAbi = "4\n";
constexpr std::string_view kDeviceAbi = "1\n";

std::string Join(std::string_view directory, std::string_view name) {
  std::string path(directory);
  path += '/';
  return path += name;
}

absl::Status FileError(int error, const char* what, const std::string& path) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", what, " ", path));
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::string UverbsName(int number) { return absl::StrCat("uverbs", number); }

bool Exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Ignores the umask: programs of all users read the tree.
absl::Status MakeDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) != 0) {
    if (errno != EEXIST) return FileError(errno, "make", path);
    return absl::OkStatus();
  }
  if (::chmod(path.c_str(), 0755) != 0) return FileError(errno, "open to all", path);
  return absl::OkStatus();
}

absl::Status MakeDirectories(const std::string& base, std::string_view relative) {
  size_t end = 0;
  while (end != std::string_view::npos) {
    end = relative.find('/', end + 1);
    absl::Status status = MakeDirectory(Join(base, relative.substr(0, end)));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status CreateFile(const std::string& path, std::string_view content) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd.valid() || ::fchmod(fd.get(), 0644) != 0) return FileError(errno, "create", path);
  if (content.empty()) return absl::OkStatus();
  const ssize_t written = ::pwrite(fd.get(), content.data(), content.size(), 0);
  if (written == static_cast<ssize_t>(content.size())) return absl::OkStatus();
  return FileError(written < 0 ? errno : ENOSPC, "write", path);
}

absl::Status MakeLink(const std::string& target, const std::string& path) {
  if (::symlink(target.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return FileError(errno, "link", path);
}

absl::Status Rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return FileError(errno, "rename to", to);
}

// Does not follow links out of the tree.
void RemoveAll(const std::string& path) {
  std::error_code ignored;
  stdfs::remove_all(path, ignored);
}

void RemoveContents(const std::string& path) {
  std::error_code error;
  for (stdfs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    RemoveAll(entry->path().string());
  }
}

std::string NearCpus(const std::string& kernel_sysfs, int numa_node) {
  std::string list;
  if (numa_node >= 0) {
    list = ReadFile(absl::StrCat(kernel_sysfs, "/devices/system/node/node", numa_node, "/cpulist"));
  }
  if (list.empty()) list = ReadFile(kernel_sysfs + "/devices/system/cpu/online");
  absl::StripAsciiWhitespace(&list);
  return list.empty() ? "0" : list;
}

// Whether the kernel itself has the entry. Entries of another daemon do not count: this daemon may
// have been started in that daemon's mount namespace (`roci run`).
bool KernelHas(const std::string& kernel_sysfs, std::string_view entry) {
  const std::string path = Join(kernel_sysfs, entry);
  return Exists(path) && !Exists(Join(path, abi::kSocketAttribute));
}

}  // namespace

struct SysfsTree::DeviceEntry {
  DeviceDescription description;
  int uverbs = 0;
  std::string directory;  // class/infiniband/DEV, absolute
  SysfsFiles files;       // as they are now
};

SysfsTree::SysfsTree(SysfsTreeOptions options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<SysfsTree>> SysfsTree::Create(SysfsTreeOptions options) {
  std::unique_ptr<SysfsTree> tree(new SysfsTree(std::move(options)));
  absl::Status status = tree->Prepare();
  if (!status.ok()) return status;
  return tree;
}

absl::Status SysfsTree::Prepare() {
  absl::Status status = MakeDirectory(options_.root);
  for (std::string_view directory : {kInfiniband, kVerbs, kStaging}) {
    if (status.ok()) status = MakeDirectories(options_.root, directory);
  }
  if (!status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(status.message(), "; choose another --runtime-dir"));
  }
  Clear();
  status = WriteFile(Path(kVerbs, "abi_version"), kVerbsAbi);
  if (status.ok() && options_.advertise_rdma_cm) status = AddRdmaCm();
  return status;
}

SysfsTree::~SysfsTree() {
  Clear();
  std::error_code ignored;
  stdfs::remove(Path(kStaging), ignored);
}

std::string SysfsTree::Path(std::string_view first, std::string_view second) const {
  const std::string path = Join(options_.root, first);
  return second.empty() ? path : Join(path, second);
}

// Removes the verbs devices first, so that no program follows one to a removed device.
void SysfsTree::Clear() {
  RemoveContents(Path(kVerbs));
  RemoveContents(Path(kInfiniband));
  RemoveAll(Path("class/misc"));
  RemoveContents(Path(kStaging));
}

absl::Status SysfsTree::WriteFile(const std::string& path, std::string_view content) {
  const std::string fresh = Path(kStaging, "value");
  absl::Status status = CreateFile(fresh, content);
  if (status.ok()) status = Rename(fresh, path);
  return status;
}

absl::Status SysfsTree::AddRdmaCm() {
  absl::Status status = MakeDirectories(options_.root, kRdmaCm);
  if (status.ok()) status = WriteFile(Path(kRdmaCm, "abi_version"), kRdmaCmAbi);
  if (status.ok()) status = WriteFile(Path(kRdmaCm, "dev"), StandInDevice());
  if (status.ok() && !options_.rdma_cm_socket_path.empty()) {
    status = WriteFile(Path(kRdmaCm, abi::kSocketAttribute), options_.rdma_cm_socket_path + "\n");
  }
  return status;
}

std::string SysfsTree::StandInDevice() {
  return absl::StrCat(abi::kStandInMajor, ":", abi::kStandInMinor, "\n");
}

int SysfsTree::FreeUverbsNumber() const {
  std::set<int> used;
  for (const auto& [name, device] : devices_) used.insert(device->uverbs);
  int number = 0;
  while (used.contains(number) ||
         KernelHas(options_.kernel_sysfs, Join(kVerbs, UverbsName(number)))) {
    ++number;
  }
  return number;
}

absl::StatusOr<SysfsTree::DeviceEntry*> SysfsTree::Find(std::string_view name) {
  const auto found = devices_.find(name);
  if (found == devices_.end()) {
    return absl::NotFoundError("there is no device " + std::string(name));
  }
  return found->second.get();
}

absl::StatusOr<int> SysfsTree::AddDevice(const DeviceDescription& description) {
  absl::Status status = ValidateDevice(description);
  if (!status.ok()) return status;
  const std::string& name = description.name;
  if (devices_.contains(name) || KernelHas(options_.kernel_sysfs, Join(kInfiniband, name))) {
    return absl::AlreadyExistsError(absl::StrCat("a device ", name, " already exists"));
  }
  auto device = std::make_unique<DeviceEntry>();
  device->description = description;
  device->uverbs = FreeUverbsNumber();
  device->directory = Path(kInfiniband, name);
  const std::string cpus = NearCpus(options_.kernel_sysfs, description.numa_node);
  device->files = RenderDevice(description, cpus);
  device->files[abi::kSocketAttribute] = options_.socket_path + "\n";

  const std::string uverbs = UverbsName(device->uverbs);
  const std::string staged_device = Path(kStaging, name);
  const std::string staged_verbs = Path(kStaging, "." + uverbs);
  status = BuildDevice(*device, staged_device);
  if (status.ok()) status = BuildVerbs(*device, staged_verbs);
  if (status.ok()) status = Rename(staged_device, device->directory);
  if (status.ok()) status = Rename(staged_verbs, Path(kVerbs, uverbs));
  if (!status.ok()) {
    for (const std::string& path : {staged_device, staged_verbs, device->directory})
      RemoveAll(path);
    return status;
  }
  const int number = device->uverbs;
  devices_.emplace(name, std::move(device));
  return number;
}

absl::Status SysfsTree::BuildDevice(const DeviceEntry& device, const std::string& where) {
  absl::Status status = MakeDirectory(where);
  for (std::string_view directory :
       {"device/infiniband", "device/infiniband_verbs", "ports/1/gids", "ports/1/gid_attrs/types",
        "ports/1/gid_attrs/ndevs", "ports/1/pkeys", "ports/1/counters", "ports/1/hw_counters"}) {
    if (status.ok()) status = MakeDirectories(where, directory);
  }
  for (const auto& [path, content] : device.files) {
    if (status.ok()) status = CreateFile(Join(where, path), content);
  }
  // Link targets are relative to class/infiniband/DEV/device/NAME/.
  const std::string uverbs = UverbsName(device.uverbs);
  const std::string& name = device.description.name;
  if (status.ok()) {
    status = MakeLink("../../../../infiniband_verbs/" + uverbs,
                      where + "/device/infiniband_verbs/" + uverbs);
  }
  if (status.ok()) {
    status = MakeLink("../../../" + name, where + "/device/infiniband/" + name);
  }
  if (status.ok()) status = BuildNetdev(device, where);
  return status;
}

absl::Status SysfsTree::BuildNetdev(const DeviceEntry& device,
                                    const std::string& device_directory) {
  const std::string& netdev = device.description.netdev;
  // No device/net at all: programs read an empty one as an interface without a name.
  if (netdev.empty()) return absl::OkStatus();
  absl::Status status = MakeDirectories(device_directory, "device/net");
  if (!status.ok()) return status;
  const std::string where = device_directory + "/device/net/";
  const std::string kernel = options_.kernel_sysfs + "/class/net/" + netdev;
  if (Exists(kernel)) return MakeLink(kernel, where + netdev);
  status = MakeDirectory(where + netdev);
  for (const auto& [path, content] : RenderNetdev(device.description)) {
    if (status.ok()) status = CreateFile(Join(where + netdev, path), content);
  }
  return status;
}

absl::Status SysfsTree::BuildVerbs(const DeviceEntry& device, const std::string& where) {
  const std::string& name = device.description.name;
  const std::pair<std::string_view, std::string> files[] = {
      {"ibdev", name + "\n"},
      {"dev", StandInDevice()},
      {"abi_version", std::string(kDeviceAbi)},
      {abi::kSocketAttribute, options_.socket_path + "\n"},
  };
  absl::Status status = MakeDirectory(where);
  for (const auto& [path, content] : files) {
    if (status.ok()) status = CreateFile(Join(where, path), content);
  }
  if (status.ok()) status = MakeLink("../../infiniband/" + name + "/device", where + "/device");
  return status;
}

absl::Status SysfsTree::RemoveDevice(std::string_view name) {
  absl::StatusOr<DeviceEntry*> device = Find(name);
  if (!device.ok()) return device.status();
  const std::string uverbs = UverbsName((*device)->uverbs);
  const std::string gone_verbs = Path(kStaging, "." + uverbs);
  const std::string gone_device = Path(kStaging, name);
  absl::Status status = Rename(Path(kVerbs, uverbs), gone_verbs);
  status.Update(Rename((*device)->directory, gone_device));
  RemoveAll(gone_verbs);
  RemoveAll(gone_device);
  devices_.erase(devices_.find(name));
  return status;
}

absl::Status SysfsTree::Replace(DeviceEntry& device, const SysfsFiles& files) {
  absl::Status result;
  for (const auto& [path, content] : files) {
    auto [current, is_new] = device.files.try_emplace(path);
    if (!is_new && current->second == content) continue;
    const absl::Status status = WriteFile(Join(device.directory, path), content);
    result.Update(status);
    if (status.ok()) current->second = content;
  }
  return result;
}

absl::Status SysfsTree::SetGids(std::string_view name, absl::Span<const GidDescription> gids) {
  absl::StatusOr<DeviceEntry*> device = Find(name);
  if (!device.ok()) return device.status();
  DeviceDescription description = (*device)->description;
  const std::vector<GidDescription> old = std::move(description.gids);
  description.gids.assign(gids.begin(), gids.end());
  absl::Status status = ValidateDevice(description);
  if (!status.ok()) return status;
  status = Replace(**device, RenderGids(gids));
  if (gids.size() < old.size()) {
    const SysfsFiles kept = RenderGids(gids);
    for (const auto& [path, content] : RenderGids(old)) {
      if (kept.contains(path)) continue;
      ::unlink(Join((*device)->directory, path).c_str());
      (*device)->files.erase(path);
    }
  }
  (*device)->description = std::move(description);
  return status;
}

absl::Status SysfsTree::SetPort(std::string_view name, const Port& port) {
  absl::StatusOr<DeviceEntry*> device = Find(name);
  if (!device.ok()) return device.status();
  DeviceDescription& description = (*device)->description;
  description.state = port.state;
  description.rate_mbps = port.rate_mbps;
  description.mtu = port.mtu;
  description.enabled = port.enabled;
  absl::Status status = Replace(**device, RenderPortState(description));
  const std::string netdev = "device/net/" + description.netdev;
  struct stat st;
  const bool own_netdev = !description.netdev.empty() &&
                          ::lstat(Join((*device)->directory, netdev).c_str(), &st) == 0 &&
                          S_ISDIR(st.st_mode);
  if (own_netdev) {
    SysfsFiles files;
    for (auto& [path, content] : RenderNetdev(description)) {
      files[Join(netdev, path)] = std::move(content);
    }
    status.Update(Replace(**device, files));
  }
  return status;
}

absl::Status SysfsTree::SetNodeDescription(std::string_view name, std::string_view text) {
  absl::StatusOr<DeviceEntry*> device = Find(name);
  if (!device.ok()) return device.status();
  DeviceDescription description = (*device)->description;
  description.node_description = text;
  absl::Status status = ValidateDevice(description);
  if (!status.ok()) return status;
  // libibverbs identifies a device directory by its modification time.
  const std::string& directory = (*device)->directory;
  struct stat before;
  if (::stat(directory.c_str(), &before) != 0) return FileError(errno, "see", directory);
  status = Replace(**device, SysfsFiles{{"node_desc", std::string(text) + "\n"}});
  const timespec times[2] = {before.st_atim, before.st_mtim};
  if (::utimensat(AT_FDCWD, directory.c_str(), times, 0) != 0) {
    status.Update(FileError(errno, "set the time of", directory));
  }
  (*device)->description = std::move(description);
  return status;
}

absl::Status SysfsTree::SetCounters(std::string_view name, CounterGroup group,
                                    absl::Span<const CounterValue> values) {
  absl::StatusOr<DeviceEntry*> device = Find(name);
  if (!device.ok()) return device.status();
  absl::Status status;
  SysfsFiles files;
  for (const CounterValue& counter : values) {
    std::string path = CounterPath(group, counter.name);
    if (!(*device)->files.contains(path)) {
      status.Update(absl::NotFoundError("there is no counter " + path));
      continue;
    }
    files[std::move(path)] = absl::StrCat(counter.value, "\n");
  }
  status.Update(Replace(**device, files));
  return status;
}

}  // namespace roci::control
