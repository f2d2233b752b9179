#include "control/check_config.h"

#include <linux/if_ether.h>
#include <net/if.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "control/unique_fd.h"
#include "dataplane/port_devargs.h"
#include "dataplane/port_drivers.h"

namespace roci::control {
namespace {

absl::Status Fault(const std::string& file, const std::string& key, const std::string& reason) {
  return absl::InvalidArgumentError(
      absl::StrCat(file.empty() ? "configuration" : file, ": ", key, ": ", reason));
}

std::string Processors(const cpu_set_t& set) {
  std::vector<int> numbers;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) numbers.push_back(cpu);
  }
  return absl::StrJoin(numbers, ", ");
}

std::string Addresses(const DeviceConfig& device) {
  std::string out;
  for (const InterfaceAddress& address : device.addresses) {
    absl::StrAppend(&out, " ", IpText(address.gid), "/", address.prefix_length);
  }
  for (const VlanSettings& vlan : device.vlans) {
    absl::StrAppend(&out, " (VLAN ", vlan.id, ":");
    for (const InterfaceAddress& address : vlan.addresses) {
      absl::StrAppend(&out, " ", IpText(address.gid), "/", address.prefix_length);
    }
    absl::StrAppend(&out, vlan.addresses.empty() ? " its link-local address only)" : ")");
  }
  return out.empty() ? " its link-local address only" : out;
}

// DPDK's driver for the port of a machine's own interface says EPERM whatever is missing. Empty:
// nothing is, or it is no such port.
std::string WhatAnInterfaceLacks(const std::string& port) {
  constexpr absl::string_view kInterface = "iface=";
  if (port.rfind("net_af_packet", 0) != 0 && port.rfind("net_af_xdp", 0) != 0) return "";
  absl::string_view name;
  for (absl::string_view part : absl::StrSplit(port, ',')) {
    if (absl::ConsumePrefix(&part, kInterface)) name = part;
  }
  if (name.empty()) return "names no interface (iface=NAME)";
  if (if_nametoindex(std::string(name).c_str()) == 0) {
    return absl::StrCat("there is no network interface \"", name, "\"");
  }
  const UniqueFd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  return socket.valid() || errno != EPERM ? "" : "needs the right to raw sockets (CAP_NET_RAW)";
}

// DPDK says of a device that it cannot have only that there is none. Drivers of the kernel's beside
// which it works are those of NVIDIA's and Microsoft's adapters.
std::string WhatAPciDeviceLacks(const std::string& port) {
  if (!dataplane::IsPciAddress(port)) return "";
  const std::string path = absl::StrCat("/sys/bus/pci/devices/", dataplane::PortName(port));
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return "there is no such PCI device";
  const std::filesystem::path link = std::filesystem::read_symlink(path + "/driver", error);
  const std::string driver = link.filename().string();
  constexpr absl::string_view kFit[] = {"vfio-pci",  "uio_pci_generic", "igb_uio",
                                        "mlx4_core", "mlx5_core",       "mana"};
  if (std::find(std::begin(kFit), std::end(kFit), driver) != std::end(kFit)) return "";
  return absl::StrCat("is bound to ", driver.empty() ? "no driver" : "the kernel's driver ", driver,
                      ", not to vfio-pci or uio_pci_generic (docs/ports.md)");
}

}  // namespace

absl::Status CheckMachine(const Config& config, const std::string& file) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
  for (const uint32_t cpu : config.daemon.pin) {
    if (!known || (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed))) continue;
    return Fault(
        file, "daemon.pin",
        absl::StrCat("processor ", cpu, " is not there, or not for this process, which has ",
                     Processors(allowed)));
  }
  for (size_t i = 0; i < config.devices.size(); ++i) {
    const DeviceConfig& device = config.devices[i];
    if (device.port.empty()) continue;
    const std::string key = absl::StrCat("device[", i, "].port");
    if (dataplane::HasPortDriver(device.port)) {
      const std::string lack =
          absl::StrCat(WhatAnInterfaceLacks(device.port), WhatAPciDeviceLacks(device.port));
      if (lack.empty()) continue;
      return Fault(file, key, absl::StrCat("\"", device.port, "\": ", lack));
    }
    return Fault(file, key,
                 absl::StrCat("DPDK has no driver for \"", device.port, "\", the port of ",
                              device.name, " (a PCI address, or net_af_packet0,iface=NAME, ...)"));
  }
  return absl::OkStatus();
}

std::string DescribeConfig(const Config& config, const std::string& runtime_dir) {
  const DaemonConfig& daemon = config.daemon;
  std::string out =
      absl::StrCat("  ", config.devices.size(), config.devices.size() == 1 ? " device" : " devices",
                   " in ", runtime_dir, ", ", daemon.lcores,
                   daemon.lcores == 1 ? " dataplane thread" : " dataplane threads");
  if (!daemon.pin.empty()) {
    absl::StrAppend(&out, " on processor ", absl::StrJoin(daemon.pin, ", "));
  }
  absl::StrAppend(&out, daemon.spin ? ", never sleeping\n" : "\n");
  for (const DeviceConfig& device : config.devices) {
    absl::StrAppend(&out, "  ", device.name, " on ", device.wire.empty() ? "port " : "wire ",
                    device.wire.empty() ? device.port : device.wire, ", MTU ", device.mtu, ":",
                    Addresses(device), "\n");
  }
  return out;
}

}  // namespace roci::control
