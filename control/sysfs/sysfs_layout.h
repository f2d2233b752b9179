// Renders a device's sysfs files from its description. Pure: does not access the file system.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "dataplane/base/limits.h"
#include "roce/types.h"

namespace roci::control {

enum class GidType { kRoceV1, kRoceV2 };

// Port states of PortInfo (IBTA vol 1, 14.2.5.6).
enum class SysfsPortState { kDown = 1, kInit = 2, kArmed = 3, kActive = 4 };

struct GidDescription {
  roce::Gid gid;  // all zero for an empty slot
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

// ports/1/counters (names and units of the IB management classes: port_*_data in 4-byte words) and
// ports/1/hw_counters (vendor counters).
enum class CounterGroup { kPort, kHardware };

// Counters that monitoring programs expect of every adapter: those of the kernel's IB core and of
// rdma_rxe. A device may have more.
absl::Span<const std::string_view> StandardPortCounters();
absl::Span<const std::string_view> StandardHardwareCounters();

struct DeviceDescription {
  std::string name;             // "roci0": letters, digits, '_', '-'
  uint64_t node_guid = 0;       // host byte order
  uint64_t sys_image_guid = 0;  // host byte order
  std::string node_description;
  std::string firmware_version = "0.1.0";
  std::string hardware_revision = "0";
  // Empty: there is no such file, as some drivers have none.
  std::string hca_type = "rocinante";
  std::string board_id = "ROCI000000001";
  roce::Mac mac;
  uint32_t mtu = dataplane::kStandardMtuBytes;  // bytes of Ethernet payload
  // Shown in device/net/: a link to the kernel's interface of that name if it exists, else a
  // directory with the values above. Empty: no device/net/.
  std::string netdev;
  int numa_node = -1;
  SysfsPortState state = SysfsPortState::kDown;
  bool enabled = true;  // false: administratively down
  uint64_t rate_mbps = 100'000;
  uint32_t capability_mask = 0x00010000;  // PortInfo:CapabilityMask, "communication management"
  // The whole GID table: gid_tbl_len entries.
  std::vector<GidDescription> gids;
  std::vector<uint16_t> pkeys = {0xffff};
  // Counters in addition to the standard ones.
  std::vector<std::string> port_counters;
  std::vector<std::string> hardware_counters;
};

// Files below class/infiniband/DEV by relative path, with their whole content.
using SysfsFiles = std::map<std::string, std::string, std::less<>>;

// InvalidArgument: a name is not a valid path component, or a text is not one line.
absl::Status ValidateDevice(const DeviceDescription& device);

// All files of class/infiniband/DEV that depend only on the description; counters are zero.
// `cpu_list`: processors near the device in the kernel's notation ("0-3,8"). The description must
// be valid (ValidateDevice).
SysfsFiles RenderDevice(const DeviceDescription& device, std::string_view cpu_list);

// Parts of RenderDevice, for updates.
SysfsFiles RenderGids(absl::Span<const GidDescription> gids);
SysfsFiles RenderPortState(const DeviceDescription& device);
std::string CounterPath(CounterGroup group, std::string_view name);

// Files below device/net/IFNAME for an interface that does not exist in the kernel.
SysfsFiles RenderNetdev(const DeviceDescription& device);

// "100 Gb/sec (4X EDR)", or only "7 Gb/sec" if no width and signalling rate give this speed.
std::string RateText(uint64_t mbps);

// The kernel's mask notation, 32-bit words from the highest: "0-3,32" is "00000001,0000000f".
// Processors above 4095 are left out.
std::string CpuMask(std::string_view cpu_list);

}  // namespace roci::control
