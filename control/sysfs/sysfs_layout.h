// What a device looks like in sysfs: its description, and the text of each file. Pure: nothing here
// touches the file system.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "roce/types.h"

namespace roci::control {

enum class GidType { kRoceV1, kRoceV2 };

// Port states as IBTA vol 1, 14.2.5.6 (PortInfo) numbers them.
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

// ports/1/counters (named and scaled as the IB management classes do: port_*_data in 4-byte words)
// and ports/1/hw_counters (what vendors add).
enum class CounterGroup { kPort, kHardware };

// Names that monitoring programs expect of any adapter: those of the kernel's IB core and of its
// software adapter. A device may have more.
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
  roce::Mac mac;
  uint32_t mtu = 1500;  // bytes of Ethernet payload
  // Shown in device/net/: a link to the kernel's interface where it has one of that name, else a
  // directory with the values above. Empty: there is no device/net/.
  std::string netdev;
  int numa_node = -1;
  SysfsPortState state = SysfsPortState::kDown;
  bool enabled = true;  // false: down because the administrator wants it so
  uint64_t rate_mbps = 100'000;
  uint32_t capability_mask = 0x00010000;  // PortInfo:CapabilityMask, "communication management"
  // The whole GID table: as many entries as the port's gid_tbl_len says.
  std::vector<GidDescription> gids;
  std::vector<uint16_t> pkeys = {0xffff};
  // Counters in addition to the standard ones.
  std::vector<std::string> port_counters;
  std::vector<std::string> hardware_counters;
};

// Files below class/infiniband/DEV by relative path, with their whole content.
using SysfsFiles = std::map<std::string, std::string, std::less<>>;

// InvalidArgument, with the reason, for names that cannot be paths or would break a line.
absl::Status ValidateDevice(const DeviceDescription& device);

// Every file that depends on the description alone, counters at zero. `cpu_list` is the kernel's
// list of processors near the device ("0-3,8"). The device must be valid.
SysfsFiles RenderDevice(const DeviceDescription& device, std::string_view cpu_list);

// Parts of it, for updates.
SysfsFiles RenderGids(absl::Span<const GidDescription> gids);
SysfsFiles RenderPortState(const DeviceDescription& device);
std::string CounterPath(CounterGroup group, std::string_view name);

// Files below device/net/IFNAME, for an interface that the kernel does not have.
SysfsFiles RenderNetdev(const DeviceDescription& device);

// "100 Gb/sec (4X EDR)". A speed that no width and signalling rate give is shown without them.
std::string RateText(uint64_t mbps);

// The kernel's mask notation, 32-bit words from the highest: "0-3,32" is "00000001,0000000f".
// Processors above 4095 are left out.
std::string CpuMask(std::string_view cpu_list);

}  // namespace roci::control
