// A directory tree that emulates /sys/class/infiniband and other directories of sysfs with live
// values. libibverbs, librdmacm and monitoring tools find devices in it that the kernel does not
// have.
//
// Readers never see a half-written value: a changed file is a new file under the old name, so a
// reader must reopen it for each read. The directories class/infiniband and class/infiniband_verbs
// stay (empty) when the daemon ends: they are bind-mounted into the mount namespaces of programs,
// so a program that was started before a restart of the daemon sees the new daemon's devices.
// Control thread only.
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
  std::string rdma_cm_socket_path = {};  // absolute; shown to plugins in class/misc/rdma_cm
  // The kernel's tree: uverbs numbers used there are skipped.
  std::string kernel_sysfs = "/sys";
};

class SysfsTree {
 public:
  // Replaces the tree that a crashed daemon left at `root`. Fails if the directory cannot be
  // written; the message says what to do.
  static absl::StatusOr<std::unique_ptr<SysfsTree>> Create(SysfsTreeOptions options);
  // Removes every device and value.
  ~SysfsTree();
  SysfsTree(const SysfsTree&) = delete;
  SysfsTree& operator=(const SysfsTree&) = delete;

  // Adds a device atomically. Returns N of its uverbsN.
  absl::StatusOr<int> AddDevice(const DeviceDescription& description);
  absl::Status RemoveDevice(std::string_view name);

  // Updates write only what changed. NotFound for an unknown device.
  absl::Status SetGids(std::string_view name, absl::Span<const GidDescription> gids);
  // The part of a description that depends on the link.
  struct Port {
    SysfsPortState state;
    uint64_t rate_mbps;
    uint32_t mtu;
    bool enabled = true;
    bool operator==(const Port&) const = default;
  };
  absl::Status SetPort(std::string_view name, const Port& port);
  absl::Status SetNodeDescription(std::string_view name, std::string_view text);
  // NotFound: a counter is not in the device's description; the others are still written.
  absl::Status SetCounters(std::string_view name, CounterGroup group,
                           absl::Span<const CounterValue> values);

 private:
  struct DeviceEntry;

  explicit SysfsTree(SysfsTreeOptions options);
  absl::Status Prepare();
  void Clear();
  absl::Status AddRdmaCm();
  absl::Status BuildDevice(const DeviceEntry& device, const std::string& where);
  absl::Status BuildNetdev(const DeviceEntry& device, const std::string& device_directory);
  absl::Status BuildVerbs(const DeviceEntry& device, const std::string& where);

  absl::StatusOr<DeviceEntry*> Find(std::string_view name);
  int FreeUverbsNumber() const;
  std::string Path(std::string_view first, std::string_view second = {}) const;
  static std::string StandInDevice();

  // Writes those of `files` (relative to the device's directory) that have changed.
  absl::Status Replace(DeviceEntry& device, const SysfsFiles& files);
  // Atomic: a reader opens either the old file or the new one.
  absl::Status WriteFile(const std::string& path, std::string_view content);

  const SysfsTreeOptions options_;
  std::map<std::string, std::unique_ptr<DeviceEntry>, std::less<>> devices_;
};

}  // namespace roci::control
