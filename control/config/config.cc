#include "control/config/config.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "control/config/daemon_reader.h"
#include "control/config/device_reader.h"
#include "control/config/toml_reader.h"
#include "control/net/addresses.h"
#include "dataplane/port/port_devargs.h"
#include "memory/split_mix.h"

namespace roci::control {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

roce::Mac DefaultMac(size_t index) {
  return roce::Mac{{0x02, 'r', 'o', 'c', 'i', static_cast<uint8_t>(index)}};
}

void ReadWires(TomlReader& reader, Config& config) {
  std::set<std::string> names;
  reader.Tables("wire", [&](TomlReader& table, size_t) {
    WireConfig& wire = config.wires.emplace_back();
    ReadName(table, wire.name);
    if (!names.insert(wire.name).second) table.Fault("name", "another wire has this name");
  });
}

bool HasWire(const Config& config, const std::string& name) {
  for (const WireConfig& wire : config.wires) {
    if (wire.name == name) return true;
  }
  return false;
}

// Checks that devices do not share a name or a port, nor a MAC or an address on one wire.
void CheckAgainstOthers(TomlReader& reader, const Config& config, const DeviceConfig& device) {
  for (const DeviceConfig& other : config.devices) {
    if (&other == &device) continue;
    if (other.name == device.name) reader.Fault("name", "another device has this name");
    if (!device.port.empty() && !other.port.empty() &&
        dataplane::PortName(other.port) == dataplane::PortName(device.port)) {
      reader.Fault("port", absl::StrCat(other.name, " already uses port ",
                                        dataplane::PortName(device.port)));
    }
    if (device.wire.empty() || other.wire != device.wire) continue;
    if (other.mac == device.mac) {  // both are set: devices on a wire have a default MAC
      reader.Fault("mac", absl::StrCat(other.name, " on the same wire has this MAC"));
    }
    for (const InterfaceAddress& address : AddressesOf(device)) {
      for (const InterfaceAddress& taken : AddressesOf(other)) {
        if (address.net() != taken.net()) continue;
        reader.Fault("addresses", absl::StrCat(NetText(address.net()), " belongs to ", other.name,
                                               " on the same wire"));
      }
    }
  }
}

void ReadDevices(TomlReader& reader, Config& config) {
  reader.Tables("device", [&](TomlReader& table, size_t index) {
    if (index >= kMaxDevices) {
      return table.Fault("name", absl::StrCat("more than ", kMaxDevices, " devices"));
    }
    DeviceConfig& device = config.devices.emplace_back();
    ReadDevice(table, device);
    if (!device.wire.empty()) {
      if (!HasWire(config, device.wire)) table.Fault("wire", "no [[wire]] has this name");
      if (!device.mac) device.mac = DefaultMac(index);
    }
    if (config.daemon.virtual_time.is_used && !device.port.empty()) {
      table.Fault("port", "clock = \"virtual\" of [daemon] is for devices on wires only");
    }
    CheckAgainstOthers(table, config, device);
    device.congestion = CongestionOf(config.congestion, device.congestion_use, !device.wire.empty(),
                                     device.rate_mbps);
    const uint32_t least_mbps = config.congestion.parameters.min_rate_kbps / 1000;
    if (device.congestion && device.rate_mbps < least_mbps) {
      table.Fault("rate_mbps",
                  absl::StrCat("is less than min_rate_mbps of [congestion], ", least_mbps));
    }
  });
}

void AddDefaultDevices(Config& config) {
  config.wires = {{.name = "wire0"}};
  for (size_t i = 0; i < 2; ++i) {
    DeviceConfig& device = config.devices.emplace_back();
    device.name = absl::StrCat("roci", i);
    device.mac = DefaultMac(i);
    device.addresses = {*ParseInterfaceAddress(absl::StrCat("10.99.0.", i + 1, "/24")),
                        *ParseInterfaceAddress(absl::StrCat("fd72:6f63:6900::", i + 1, "/64"))};
    device.mtu = kDefaultWireMtuBytes;
    device.wire = "wire0";
    device.congestion = CongestionOf(config.congestion, std::nullopt, true, device.rate_mbps);
  }
}

// Of each device, so that what happens on one does not change the numbers of another.
void SetSeeds(Config& config) {
  if (!config.daemon.virtual_time.is_used) return;
  for (size_t i = 0; i < config.devices.size(); ++i) {
    config.devices[i].seed = memory::SplitMix::At(config.daemon.seed, i);
  }
}

}  // namespace

Config DefaultConfig() {
  Config config;
  AddDefaultDevices(config);
  return config;
}

absl::StatusOr<Config> ParseConfig(std::string_view text, const std::string& file) {
  Config config;
  const auto read = [&](const toml::table& table, TomlFaults& faults) {
    TomlReader reader(table, "", faults);
    reader.Table("daemon", [&](TomlReader& t) { ReadDaemon(t, config.daemon); });
    reader.Table("memory", [&](TomlReader& t) { ReadMemory(t, config.memory); });
    reader.Table("limits", [&](TomlReader& t) { ReadLimits(t, config.limits); });
    reader.Table("congestion", [&](TomlReader& t) { ReadCongestion(t, config.congestion); });
    ReadWires(reader, config);
    ReadDevices(reader, config);
    reader.RefuseOthers();
    if (config.devices.empty() && !config.wires.empty()) {
      reader.Fault("wire", "no [[device]] uses it");
    }
  };
  const absl::Status status = ParseToml(absl::string_view(text.data(), text.size()), file, read);
  if (!status.ok()) return status;
  if (config.devices.empty()) AddDefaultDevices(config);
  SetSeeds(config);
  return config;
}

absl::StatusOr<Config> LoadConfig(const std::string& file) {
  const absl::StatusOr<std::string> text = ReadTextFile(file, kMaxFileBytes, "a configuration");
  if (!text.ok()) return text.status();
  return ParseConfig(*text, file);
}

}  // namespace roci::control
