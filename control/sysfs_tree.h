// The directory tree that looks like /sys/class/infiniband and friends, with live values, by which
// libibverbs, librdmacm and monitoring tools find a device where the kernel has none.
//
// Values change in place and are never seen half-written. The directories class/infiniband and
// class/infiniband_verbs outlive the daemon (empty): they are what a program's mount namespace shows,
// so a program started before a restart of the daemon sees the new daemon's devices.
// Not thread-safe; belongs to the control thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace roci::control {

enum class GidType { kRoceV1, kRoceV2 };

// Port states as IBTA vol 1, 14.2.5.6 (PortInfo) numbers them.
enum class SysfsPortState { kDown = 1, kInit = 2, kArmed = 3, kActive = 4 };

struct GidDescription {
  std::array<uint8_t, 16> gid{};  // network byte order; all zero for an empty slot
  GidType type = GidType::kRoceV2;
  // Network interface that the GID belongs to. Must exist on the machine or be empty: libibverbs
  // fails to query a GID whose interface has no index.
  std::string netdev;

  bool operator==(const GidDescription&) const = default;
};

struct CounterValue {
  std::string_view name;
  uint64_t value = 0;
};

// ports/1/counters (named and scaled as the IB management classes do: port_*_data in 4-byte words) and
// ports/1/hw_counters (what vendors add).
enum class CounterGroup { kPort, kHardware };

// Names that monitoring programs expect of any adapter. A device may have more.
absl::Span<const std::string_view> StandardPortCounters();
absl::Span<const std::string_view> StandardHardwareCounters();

struct DeviceDescription {
  std::string name;             // "roci0": letters, digits, '_', '-'
  uint64_t node_guid = 0;       // host byte order
  uint64_t sys_image_guid = 0;  // host byte order
  std::string node_description;
  std::string firmware_version = "0.1.0";
  std::string hardware_revision = "0";
  std::string hca_type = "rocinante";
  std::string board_id = "ROCI000000001";
  std::array<uint8_t, 6> mac{};
  uint32_t mtu = 1500;  // bytes of Ethernet payload
  // Shown in device/net/: a link to the kernel's interface where it has one of that name, else a
  // directory with the values above. Empty: device/net/ is empty.
  std::string netdev;
  int numa_node = -1;
  SysfsPortState state = SysfsPortState::kDown;
  uint64_t rate_mbps = 100'000;
  uint32_t capability_mask = 0x00010000;  // PortInfo:CapabilityMask, "communication management"
  // The whole GID table: as many entries as the port's gid_tbl_len says.
  std::vector<GidDescription> gids;
  std::vector<uint16_t> pkeys = {0xffff};
  // Counters in addition to the standard ones.
  std::vector<std::string> port_counters;
  std::vector<std::string> hardware_counters;
};

struct SysfsTreeOptions {
  std::string root;         // <runtime dir>/sysfs; parents must exist
  std::string socket_path;  // absolute; shown to plugins (abi::kSocketAttribute)
  // Shows class/misc/rdma_cm. Only for a daemon that serves the connection manager.
  bool advertise_rdma_cm = false;
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
  absl::StatusOr<int> AddDevice(const DeviceDescription& device);
  absl::Status RemoveDevice(std::string_view name);

  // Updates write only what changed. NotFound for an unknown device.
  absl::Status SetGids(std::string_view name, absl::Span<const GidDescription> gids);
  absl::Status SetPortState(std::string_view name, SysfsPortState state, uint64_t rate_mbps);
  absl::Status SetNodeDescription(std::string_view name, std::string_view description);
  // NotFound for a counter that the device was not described with; the others are written still.
  absl::Status SetCounters(std::string_view name, CounterGroup group,
                           absl::Span<const CounterValue> values);

 private:
  struct Device;

  explicit SysfsTree(SysfsTreeOptions options);
  absl::Status Prepare();
  absl::StatusOr<Device*> Find(std::string_view name);
  int FreeUverbsNumber() const;

  const SysfsTreeOptions options_;
  std::map<std::string, std::unique_ptr<Device>, std::less<>> devices_;
};

}  // namespace roci::control
