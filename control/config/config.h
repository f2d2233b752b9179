// The daemon's configuration: reads and checks a TOML file, with defaults for absent keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "control/config/congestion_config.h"
#include "control/config/device_limits.h"
#include "control/config/metrics_address.h"
#include "control/config/personality.h"
#include "control/loop/log.h"
#include "control/net/addresses.h"
#include "control/net/ip_text.h"
#include "dataplane/base/eal_options.h"
#include "dataplane/base/limits.h"
#include "dataplane/base/thread_priority.h"
#include "dataplane/types/fairness.h"
#include "dataplane/types/lcore_state.h"
#include "dataplane/types/port_state.h"
#include "roce/types.h"

namespace roci::control {

std::optional<LogLevel> ParseLogLevel(std::string_view name);

// How a device handles packets that arrive out of order.
enum class ReorderUse : uint8_t {
  kGoBackN,    // drops those behind a gap and asks for all again (IBTA vol 1, 9.7.5)
  kTolerate,   // keeps those behind a gap for some time
  kSelective,  // the same, and asks for what is missing alone
};

inline constexpr uint32_t kMaxDevices = 256;
inline constexpr uint32_t kDefaultWireMtuBytes = dataplane::kMaxMtuBytes;
inline constexpr uint32_t kDefaultPortMtuBytes = dataplane::kStandardMtuBytes;
inline constexpr uint32_t kMinMtuBytes = 1280;  // the minimum of IPv6 (RFC 8200, 5)

struct DaemonConfig {  // [daemon]
  uint32_t lcores = 1;
  std::vector<uint32_t> pin;  // processor of each lcore; empty: not pinned
  dataplane::HugePages hugepages = dataplane::HugePages::kAuto;
  uint32_t memory_mib = 0;  // 0: computed from devices and lcores
  bool spin = false;        // never sleep
  uint32_t idle_sleep_us = 200;
  dataplane::RealtimeUse realtime = dataplane::RealtimeUse::kAuto;
  dataplane::Fairness fairness = dataplane::Fairness::kQueuePair;
  dataplane::VirtualTime virtual_time;  // clock, virtual_quiet_ms
  uint32_t seed = 0;                    // with virtual time: of the numbers that are random without
  LogLevel log_level = LogLevel::kNotice;
  MetricsAddress metrics;  // port 0: none are served
  bool telemetry = false;  // of DPDK
  std::vector<std::string> eal_args;
  bool all_users = false;  // --all-users: serve programs of every user, as root's daemon does
};

struct MemoryConfig {  // [memory]
  roci_abi_memory_policy policy = ROCI_ABI_MEMORY_AUTO;
  uint32_t auto_inline = 256;  // bytes
};

struct LimitsConfig {  // [limits]
  DeviceLimits device;
  uint32_t max_sessions = 1024;     // open contexts, over all devices
  uint32_t ring_memory_mib = 8192;  // of all queues and completion queues together
  uint32_t user_percent = 50;       // share of each limit that one ordinary user may use (users.h)
};

struct WireConfig {  // [[wire]]
  std::string name;
};

struct DeviceConfig {  // [[device]]
  std::string name;
  std::optional<roce::Mac> mac;  // absent: the port's own
  std::vector<InterfaceAddress> addresses;
  std::optional<roce::Gid> gateway4;
  std::optional<roce::Gid> gateway6;
  std::vector<Route> routes;
  std::vector<VlanSettings> vlans;
  uint32_t mtu = kDefaultPortMtuBytes;  // bytes of Ethernet payload
  std::string wire;                     // name of a [[wire]], or
  std::string port;                     // devargs of a DPDK port
  uint32_t rate_mbps = 100'000;         // reported rate, if the port does not know its own
  dataplane::PortSettings port_settings;
  ReorderUse reorder = ReorderUse::kGoBackN;
  // How long a packet that others have overtaken is waited for.
  uint32_t reorder_wait_us = 200;
  std::optional<CongestionUse> congestion_use;  // absent: that of [congestion]
  Personality personality;
  std::vector<std::string> faults;  // [[device.fault]], as JSON (fault_reader.h)
  // Derived from `seed` of [daemon]. Absent: real time, and random numbers.
  std::optional<uint64_t> seed;
  // Derived from [congestion] and congestion_use. Absent: congestion control is off.
  std::optional<roce::CongestionParameters> congestion;
};

// "go_back_n", ...: the key's value.
std::string_view NameOf(ReorderUse use);

// The configured addresses, of all VLANs.
std::vector<InterfaceAddress> AddressesOf(const DeviceConfig& device);
// The configured routes, of all VLANs; gateways are default routes.
std::vector<Route> RoutesOf(const DeviceConfig& device);

struct Config {
  DaemonConfig daemon;
  MemoryConfig memory;
  LimitsConfig limits;
  CongestionConfig congestion;
  std::vector<WireConfig> wires;
  std::vector<DeviceConfig> devices;
};

// Two devices, roci0 and roci1, on one wire: need no NIC and no privileges.
Config DefaultConfig();

// `file` is the name in error messages. Fails with InvalidArgument and one line:
// "FILE:LINE: KEY: REASON". If there is no [[device]], the default devices are added.
absl::StatusOr<Config> ParseConfig(std::string_view text, const std::string& file);
// As ParseConfig; NotFound if the file cannot be read.
absl::StatusOr<Config> LoadConfig(const std::string& file);

}  // namespace roci::control
