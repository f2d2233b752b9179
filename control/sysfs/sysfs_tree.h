// The directory tree that looks like /sys/class/infiniband and friends, with live values, by which
// libibverbs, librdmacm and monitoring tools find a device where the kernel has none.
//
// A value is never seen half-written: a changed file is another file under the old name, so a
// reader opens it anew for each look. The directories class/infiniband and class/infiniband_verbs
// outlive the daemon (empty): they are what a program's mount namespace shows, so a program started
// before a restart of the daemon sees the new daemon's devices. Not thread-safe; belongs to the
// control thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "control/sysfs/sysfs_layout.h"

namespace roci::control {

struct SysfsTreeOptions {
  std::string root;         // <runtime dir>/sysfs; parents must exist
  std::string socket_path;  // absolute; shown to plugins (abi::kSocketAttribute)
  // Shows class/misc/rdma_cm. Only for a daemon that serves the connection manager.
  bool advertise_rdma_cm = false;
  std::string rdma_cm_socket_path = {};  // absolute; shown to plugins there
  // The kernel's tree: numbers of uverbs devices that it uses are left alone.
  std::string kernel_sysfs = "/sys";
};

class SysfsTree {
 public:
  // Replaces what a crashed daemon left at `root`. Fails (with what to do in the message) where the
  // directory cannot be written.
  static absl::StatusOr<std::unique_ptr<SysfsTree>> Create(SysfsTreeOptions options);
  // Removes every device and value.
  ~SysfsTree();
  SysfsTree(const SysfsTree&) = delete;
  SysfsTree& operator=(const SysfsTree&) = delete;

  // Shows a device, complete at once. Returns N of its uverbsN.
  absl::StatusOr<int> AddDevice(const DeviceDescription& description);
  absl::Status RemoveDevice(std::string_view name);

  // Updates write only what changed. NotFound for an unknown device.
  absl::Status SetGids(std::string_view name, absl::Span<const GidDescription> gids);
  // All of a description that the link decides.
  struct Port {
    SysfsPortState state;
    uint64_t rate_mbps;
    uint32_t mtu;
    bool enabled = true;
    bool operator==(const Port&) const = default;
  };
  absl::Status SetPort(std::string_view name, const Port& port);
  absl::Status SetNodeDescription(std::string_view name, std::string_view text);
  // NotFound for a counter that the device was not described with; the others are written still.
  absl::Status SetCounters(std::string_view name, CounterGroup group,
                           absl::Span<const CounterValue> values);

 private:
  struct Device;

  explicit SysfsTree(SysfsTreeOptions options);
  absl::Status Prepare();
  void Clear();
  absl::Status AddRdmaCm();
  absl::Status BuildDevice(const Device& device, const std::string& where);
  absl::Status BuildNetdev(const Device& device, const std::string& device_directory);
  absl::Status BuildVerbs(const Device& device, const std::string& where);

  absl::StatusOr<Device*> Find(std::string_view name);
  int FreeUverbsNumber() const;
  std::string Path(std::string_view first, std::string_view second = {}) const;
  static std::string StandInDevice();

  // Writes those of `files` (relative to the device's directory) that are not so already.
  absl::Status Replace(Device& device, const SysfsFiles& files);
  // The file at `path` is either the old one or the new one for whoever opens it.
  absl::Status WriteFile(const std::string& path, std::string_view content);

  const SysfsTreeOptions options_;
  std::map<std::string, std::unique_ptr<Device>, std::less<>> devices_;
};

}  // namespace roci::control
