#include "control/check_config.h"

#include <sched.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "control/config/port_check.h"
#include "control/manage/fault_requests.h"
#include "control/net/routes.h"
#include "dataplane/port/port_drivers.h"

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

std::string FaultCount(const DeviceConfig& device) {
  const size_t count = device.faults.size();
  return count == 0 ? "" : absl::StrCat(", ", count, count == 1 ? " fault" : " faults");
}

std::string RouteLines(const DeviceConfig& device) {
  std::vector<Route> routes = RoutesOf(device);
  std::sort(routes.begin(), routes.end(), ComesBefore);
  std::string out;
  for (const Route& route : routes) absl::StrAppend(&out, "    ", RouteText(route), "\n");
  return out;
}

}  // namespace

absl::Status CheckMachine(const Config& config, const std::string& file) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  const bool known = sched_getaffinity(0, sizeof(allowed), &allowed) == 0;
  for (const uint32_t cpu : config.daemon.pin) {
    if (!known || (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &allowed))) continue;
    return Fault(file, "daemon.pin",
                 absl::StrCat("processor ", cpu,
                              " does not exist or this process may not use it (it may use ",
                              Processors(allowed), ")"));
  }
  for (size_t i = 0; i < config.devices.size(); ++i) {
    const DeviceConfig& device = config.devices[i];
    if (device.port.empty()) continue;
    const std::string key = absl::StrCat("device[", i, "].port");
    if (dataplane::HasPortDriver(device.port)) {
      const std::string lack = WhatPortLacks(device.port);
      if (lack.empty()) continue;
      return Fault(file, key, absl::StrCat("\"", device.port, "\": ", lack));
    }
    return Fault(
        file, key,
        absl::StrCat(
            "DPDK has no driver for \"", device.port, "\", the port of ", device.name,
            " (a PCI address, packet:NAME, net_af_xdp0,iface=NAME, ...; `roci doctor` lists the "
            "drivers)"));
  }
  return absl::OkStatus();
}

absl::Status CheckFaults(const Config& config, const std::string& file) {
  for (size_t i = 0; i < config.devices.size(); ++i) {
    const std::vector<std::string>& faults = config.devices[i].faults;
    for (size_t j = 0; j < faults.size(); ++j) {
      const absl::Status status = CheckFault(nlohmann::json::parse(faults[j]));
      if (status.ok()) continue;
      return Fault(file, absl::StrCat("device[", i, "].fault[", j, "]"),
                   absl::StrReplaceAll(status.message(), {{"_ns\"", "\""}}));
    }
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
  absl::StrAppend(&out, daemon.spin ? ", never sleeping" : "",
                  daemon.fairness == dataplane::Fairness::kUser ? ", shared by users" : "", "\n");
  for (const DeviceConfig& device : config.devices) {
    absl::StrAppend(&out, "  ", device.name, " on ", device.wire.empty() ? "port " : "wire ",
                    device.wire.empty() ? device.port : device.wire, ", MTU ", device.mtu, ":",
                    Addresses(device), FaultCount(device), "\n", RouteLines(device));
  }
  return out;
}

}  // namespace roci::control
