#include "control/config/port_check.h"

#include <linux/if_ether.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "control/config/port_arguments.h"
#include "control/loop/unique_fd.h"
#include "dataplane/port/port_devargs.h"

namespace roci::control {
namespace {

std::string WhatAnInterfaceLacks(absl::string_view name) {
  return if_nametoindex(std::string(name).c_str()) != 0
             ? ""
             : absl::StrCat("there is no network interface \"", name, "\"");
}

std::string WhatRawSocketsLack() {
  const UniqueFd socket(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  return socket.valid() || errno != EPERM ? "" : "needs raw sockets: grant rocid CAP_NET_RAW";
}

// Packet sockets, net_af_packet and net_af_xdp.
std::string WhatAPacketSocketLacks(const std::string& port) {
  const std::string interface = NetworkDeviceOf(port);
  if (interface.empty()) {
    return absl::StartsWith(port, "packet") ? "names no interface (write packet:NAME)"
                                            : "names no interface (add iface=NAME)";
  }
  std::string lack = WhatAnInterfaceLacks(interface);
  return lack.empty() ? WhatRawSocketsLack() : lack;
}

// net_pcap takes interfaces or files, one for each direction or one for both.
std::string WhatPcapLacks(const std::vector<PortArgument>& arguments) {
  bool names_any = false;
  for (const PortArgument& each : arguments) {
    const bool is_interface = absl::EndsWith(each.key, "iface") || each.key == "rx_iface_in";
    names_any |= is_interface || absl::EndsWith(each.key, "_pcap");
    std::string lack;
    if (is_interface) {
      lack = WhatAnInterfaceLacks(each.value);
      if (lack.empty()) lack = WhatRawSocketsLack();
    } else if (each.key == "rx_pcap" && access(std::string(each.value).c_str(), R_OK) != 0) {
      lack = absl::StrCat(each.value, ": ", std::strerror(errno));
    }
    if (!lack.empty()) return lack;
  }
  return names_any
             ? ""
             : "names neither interface nor file (add iface=NAME, or rx_pcap=FILE,tx_pcap=FILE)";
}

std::string WhatATapLacks(const std::vector<PortArgument>& arguments) {
  for (const PortArgument& each : arguments) {
    if (each.key == "iface" && each.value.size() >= IFNAMSIZ) {
      return absl::StrCat("the interface's name is longer than ", IFNAMSIZ - 1, " characters");
    }
    if (each.key == "remote") {
      std::string lack = WhatAnInterfaceLacks(each.value);
      if (!lack.empty()) return lack;
    }
  }
  constexpr const char* kPath = "/dev/net/tun";
  if (access(kPath, R_OK | W_OK) == 0) return "";
  return absl::StrCat("needs ", kPath, ": ", std::strerror(errno));
}

// `path`: a socket in the file system, created by the port or by its peer.
std::string WhatASocketLacks(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty()) return "";
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    return absl::StrCat("there is no folder ", folder.string(), " for its socket");
  }
  return "";
}

// net_memif's socket is by default an abstract one (unix(7)), in no folder.
std::string WhatAMemifLacks(const std::vector<PortArgument>& arguments) {
  const bool is_file = ValueOf(arguments, "socket-abstract") == "no";
  return is_file ? WhatASocketLacks(ValueOf(arguments, "socket")) : "";
}

std::string WhatANamedSocketLacks(const std::vector<PortArgument>& arguments,
                                  absl::string_view key) {
  const std::string path = ValueOf(arguments, key);
  return path.empty() ? absl::StrCat("names no socket (add ", key, "=PATH)")
                      : WhatASocketLacks(path);
}

// DPDK reports a device that it cannot use only as missing. DPDK works beside the kernel drivers of
// NVIDIA's and Microsoft's adapters; other devices must be bound to a userspace I/O driver.
std::string WhatAPciDeviceLacks(const std::string& port) {
  const std::string path = absl::StrCat("/sys/bus/pci/devices/", dataplane::PortName(port));
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return "there is no such PCI device";
  const std::filesystem::path link = std::filesystem::read_symlink(path + "/driver", error);
  const std::string driver = link.filename().string();
  constexpr absl::string_view kUsable[] = {"vfio-pci",  "uio_pci_generic", "igb_uio",
                                           "mlx4_core", "mlx5_core",       "mana"};
  if (std::find(std::begin(kUsable), std::end(kUsable), driver) != std::end(kUsable)) return "";
  return absl::StrCat("is bound to ", driver.empty() ? "no driver" : "the kernel's driver ", driver,
                      "; bind it to vfio-pci or uio_pci_generic (docs/adapters.md)");
}

}  // namespace

std::string WhatPortLacks(const std::string& port) {
  if (dataplane::IsPciAddress(port)) return WhatAPciDeviceLacks(port);
  std::string fault = FaultOfPortArguments(port);
  if (!fault.empty()) return fault;
  const std::vector<PortArgument> arguments = PortArguments(port);
  const auto is = [&](absl::string_view driver) { return absl::StartsWith(port, driver); };
  if (is("packet:") || is("net_af_packet") || is("net_af_xdp")) return WhatAPacketSocketLacks(port);
  if (is("net_pcap")) return WhatPcapLacks(arguments);
  if (is("net_tap")) return WhatATapLacks(arguments);
  if (is("net_memif")) return WhatAMemifLacks(arguments);
  if (is("net_vhost")) return WhatANamedSocketLacks(arguments, "iface");
  if (is("net_virtio_user")) return WhatANamedSocketLacks(arguments, "path");
  return "";
}

}  // namespace roci::control
