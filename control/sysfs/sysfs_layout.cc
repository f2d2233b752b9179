// Renders the sysfs files of a device.
#include "control/sysfs/sysfs_layout.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "control/net/ip_text.h"

namespace roci::control {
namespace {

// The path of a file of the port.
std::string Port(std::string_view name) { return "ports/1/" + std::string(name); }

constexpr std::string_view kPortCounters[] = {
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
};

constexpr std::string_view kHardwareCounters[] = {
    "ack_deferred",       "completer_retry_err", "duplicate_request",  "link_downed",
    "out_of_seq_request", "rcvd_pkts",           "rcvd_rnr_err",       "rcvd_seq_err",
    "rdma_recvs",         "rdma_sends",          "retry_exceeded_err", "send_err",
    "send_rnr_err",       "sent_pkts",
};

struct RateName {
  uint64_t mbps;
  std::string_view text;
};

// Data rates as the kernel prints them; the common width if several give the same rate.
constexpr RateName kRates[] = {
    {2'500, "2.5 Gb/sec (1X SDR)"},   {5'000, "5 Gb/sec (1X DDR)"},
    {10'000, "10 Gb/sec (4X SDR)"},   {14'000, "14 Gb/sec (1X FDR)"},
    {20'000, "20 Gb/sec (4X DDR)"},   {25'000, "25 Gb/sec (1X EDR)"},
    {40'000, "40 Gb/sec (4X QDR)"},   {50'000, "50 Gb/sec (2X EDR)"},
    {56'000, "56 Gb/sec (4X FDR)"},   {100'000, "100 Gb/sec (4X EDR)"},
    {200'000, "200 Gb/sec (4X HDR)"}, {400'000, "400 Gb/sec (4X NDR)"},
    {800'000, "800 Gb/sec (4X XDR)"},
};

std::string GuidText(uint64_t guid) {
  return absl::StrFormat("%04x:%04x:%04x:%04x\n", guid >> 48, (guid >> 32) & 0xffff,
                         (guid >> 16) & 0xffff, guid & 0xffff);
}

std::string_view StateText(SysfsPortState state) {
  switch (state) {
    case SysfsPortState::kDown:
      return "1: DOWN\n";
    case SysfsPortState::kInit:
      return "2: INIT\n";
    case SysfsPortState::kArmed:
      return "3: ARMED\n";
    case SysfsPortState::kActive:
      return "4: ACTIVE\n";
  }
  return "0: NOP\n";
}

// Whether `name` is one path component and one word for the parsers of libibverbs.
bool IsName(std::string_view name) {
  return !name.empty() && name.size() < 64 &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '_' || c == '-';
         });
}

// Linux allows interface names of up to 15 bytes without '/', ':' and white space.
bool IsNetdevName(std::string_view name) {
  return name.size() <= 15 && name != "." && name != ".." &&
         std::none_of(name.begin(), name.end(), [](unsigned char c) {
           return c == '/' || c == ':' || !absl::ascii_isprint(c) || absl::ascii_isspace(c);
         });
}

bool IsLine(std::string_view text) {
  return text.size() <= 64 && std::none_of(text.begin(), text.end(),
                                           [](unsigned char c) { return absl::ascii_iscntrl(c); });
}

// IBTA vol 1, 14.2.5.6.
std::string PhysicalStateText(const DeviceDescription& device) {
  if (device.state != SysfsPortState::kDown) return "5: LinkUp\n";
  return device.enabled ? "2: Polling\n" : "3: Disabled\n";
}

void Merge(SysfsFiles& into, SysfsFiles files) { into.merge(files); }

}  // namespace

absl::Span<const std::string_view> StandardPortCounters() { return kPortCounters; }
absl::Span<const std::string_view> StandardHardwareCounters() { return kHardwareCounters; }

absl::Status ValidateDevice(const DeviceDescription& device) {
  if (!IsName(device.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", device.name, "' is not a valid device name"));
  }
  for (std::string_view text : {device.node_description, device.firmware_version,
                                device.hardware_revision, device.hca_type, device.board_id}) {
    if (!IsLine(text)) {
      return absl::InvalidArgumentError(
          absl::StrCat(device.name, ": a text is longer than 64 bytes or has several lines"));
    }
  }
  bool netdevs_ok = IsNetdevName(device.netdev);
  for (const GidDescription& gid : device.gids) netdevs_ok &= IsNetdevName(gid.netdev);
  if (!netdevs_ok) {
    return absl::InvalidArgumentError(absl::StrCat(device.name, ": invalid interface name"));
  }
  for (const std::vector<std::string>* names : {&device.port_counters, &device.hardware_counters}) {
    for (const std::string& name : *names) {
      if (!IsName(name)) {
        return absl::InvalidArgumentError(
            absl::StrCat(device.name, ": '", name, "' is not a valid counter name"));
      }
    }
  }
  return absl::OkStatus();
}

std::string RateText(uint64_t mbps) {
  for (const RateName& rate : kRates) {
    if (rate.mbps == mbps) return std::string(rate.text);
  }
  return absl::StrFormat("%g Gb/sec", static_cast<double>(mbps) / 1000);
}

SysfsFiles RenderPortState(const DeviceDescription& device) {
  SysfsFiles files;
  files[Port("state")] = StateText(device.state);
  files[Port("phys_state")] = PhysicalStateText(device);
  files[Port("rate")] = RateText(device.rate_mbps) + "\n";
  return files;
}

SysfsFiles RenderGids(absl::Span<const GidDescription> gids) {
  SysfsFiles files;
  for (size_t i = 0; i < gids.size(); ++i) {
    files[Port(absl::StrCat("gids/", i))] = GidText(gids[i].gid) + "\n";
    files[Port(absl::StrCat("gid_attrs/types/", i))] =
        gids[i].type == GidType::kRoceV2 ? "RoCE v2\n" : "IB/RoCE v1\n";
    // libibverbs reads an empty file as "no interface", and a lone line feed as a bad name.
    files[Port(absl::StrCat("gid_attrs/ndevs/", i))] =
        gids[i].netdev.empty() ? "" : gids[i].netdev + "\n";
  }
  return files;
}

std::string CounterPath(CounterGroup group, std::string_view name) {
  return Port(group == CounterGroup::kPort ? "counters/" : "hw_counters/") + std::string(name);
}

SysfsFiles RenderNetdev(const DeviceDescription& device) {
  const bool up = device.state == SysfsPortState::kActive;
  SysfsFiles files;
  files["address"] = MacText(device.mac) + "\n";
  files["carrier"] = up ? "1\n" : "0\n";
  files["dev_id"] = "0x0\n";
  files["dev_port"] = "0\n";
  files["mtu"] = absl::StrCat(device.mtu, "\n");
  files["operstate"] = up ? "up\n" : "down\n";
  files["speed"] = absl::StrCat(device.rate_mbps, "\n");
  files["type"] = "1\n";  // ARPHRD_ETHER
  return files;
}

SysfsFiles RenderDevice(const DeviceDescription& device, std::string_view cpu_list) {
  SysfsFiles files;
  files["node_type"] = "1: CA\n";
  files["node_guid"] = GuidText(device.node_guid);
  files["sys_image_guid"] = GuidText(device.sys_image_guid);
  files["node_desc"] = device.node_description + "\n";
  files["fw_ver"] = device.firmware_version + "\n";
  files["hw_rev"] = device.hardware_revision + "\n";
  if (!device.hca_type.empty()) files["hca_type"] = device.hca_type + "\n";
  if (!device.board_id.empty()) files["board_id"] = device.board_id + "\n";
  files["device/numa_node"] = absl::StrCat(device.numa_node, "\n");
  files["device/local_cpus"] = CpuMask(cpu_list) + "\n";
  files["device/local_cpulist"] = std::string(cpu_list) + "\n";
  files[Port("link_layer")] = "Ethernet\n";
  for (std::string_view name : {"lid", "sm_lid"}) files[Port(name)] = "0x0\n";
  for (std::string_view name : {"lid_mask_count", "sm_sl"}) files[Port(name)] = "0\n";
  files[Port("cap_mask")] = absl::StrFormat("0x%08x\n", device.capability_mask);
  for (size_t i = 0; i < device.pkeys.size(); ++i) {
    files[Port(absl::StrCat("pkeys/", i))] = absl::StrFormat("0x%04x\n", device.pkeys[i]);
  }
  Merge(files, RenderPortState(device));
  Merge(files, RenderGids(device.gids));
  const auto counters = [&files](CounterGroup group, const auto& names) {
    for (const auto& name : names) files[CounterPath(group, name)] = "0\n";
  };
  counters(CounterGroup::kPort, StandardPortCounters());
  counters(CounterGroup::kPort, device.port_counters);
  counters(CounterGroup::kHardware, StandardHardwareCounters());
  counters(CounterGroup::kHardware, device.hardware_counters);
  return files;
}

std::string CpuMask(std::string_view cpu_list) {
  constexpr uint32_t kMaxCpus = 4096;
  std::vector<uint32_t> words(1, 0);
  for (absl::string_view range : absl::StrSplit(std::string(cpu_list), ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    uint32_t first = 0;
    uint32_t last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last)) continue;
    for (uint32_t cpu = first; cpu <= last && cpu < kMaxCpus; ++cpu) {
      if (cpu / 32 >= words.size()) words.resize(cpu / 32 + 1, 0);
      words[cpu / 32] |= 1u << (cpu % 32);
    }
  }
  return absl::StrJoin(words.rbegin(), words.rend(), ",", [](std::string* out, uint32_t word) {
    absl::StrAppendFormat(out, "%08x", word);
  });
}

}  // namespace roci::control
