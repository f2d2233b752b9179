#include "control/config/port_arguments.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "dataplane/port/port_devargs.h"

namespace roci::control {
namespace {

enum class Takes : uint8_t { kText, kNumber, kMac, kOneOf };

struct ArgumentKey {
  absl::string_view name;
  Takes takes;
  uint64_t least = 0;  // of a number
  uint64_t most = 0;
  absl::string_view words = {};  // allowed words as "yes|no"; of kMac: besides a MAC address
};

constexpr ArgumentKey Text(absl::string_view name) { return {name, Takes::kText}; }
constexpr ArgumentKey Mac(absl::string_view name, absl::string_view or_words = {}) {
  return {name, Takes::kMac, 0, 0, or_words};
}
constexpr ArgumentKey Number(absl::string_view name, uint64_t least, uint64_t most) {
  return {name, Takes::kNumber, least, most};
}
constexpr ArgumentKey OneOf(absl::string_view name, absl::string_view words) {
  return {name, Takes::kOneOf, 0, 0, words};
}

constexpr absl::string_view kSwitch = "0|1";
constexpr absl::string_view kYesNo = "yes|no";
constexpr uint64_t kAnyInt = INT32_MAX;
constexpr uint64_t kAnyU16 = UINT16_MAX;

// From the chapters on these drivers in DPDK's guide to network interface controllers (22.11), with
// the bounds that the drivers check.
constexpr ArgumentKey kPacket[] = {OneOf("gso", kSwitch)};
constexpr ArgumentKey kAfPacket[] = {Text("iface"),
                                     Number("qpairs", 1, 1024),
                                     Number("blocksz", 1, kAnyInt),
                                     Number("framesz", 1, kAnyInt),
                                     Number("framecnt", 1, kAnyInt),
                                     OneOf("qdisc_bypass", kSwitch)};
constexpr ArgumentKey kAfXdp[] = {Text("iface"),
                                  Number("start_queue", 0, kAnyInt),
                                  Number("queue_count", 1, 1024),
                                  Number("shared_umem", 0, 1),
                                  Text("xdp_prog"),
                                  Number("busy_budget", 0, kAnyInt),
                                  Number("force_copy", 0, 1)};
constexpr ArgumentKey kTap[] = {Text("iface"), Mac("mac", "fixed"), Text("remote")};
constexpr ArgumentKey kMemif[] = {Number("id", 0, UINT32_MAX),
                                  OneOf("role", "server|client|master|slave"),
                                  Number("bsize", 1, kAnyU16),
                                  Number("rsize", 1, 14),
                                  Text("socket"),
                                  OneOf("socket-abstract", kYesNo),
                                  Mac("mac"),
                                  OneOf("zero-copy", kYesNo),
                                  Text("secret")};
constexpr ArgumentKey kVhost[] = {Text("iface"),
                                  Number("queues", 1, 128),
                                  OneOf("client", kSwitch),
                                  OneOf("iommu-support", kSwitch),
                                  OneOf("postcopy-support", kSwitch),
                                  OneOf("tso", kSwitch),
                                  OneOf("linear-buffer", kSwitch),
                                  OneOf("ext-buffer", kSwitch)};
constexpr ArgumentKey kVirtioUser[] = {Text("path"),
                                       Mac("mac"),
                                       OneOf("cq", kSwitch),
                                       Number("queue_size", 1, kAnyU16),
                                       Number("queues", 1, 128),
                                       Text("iface"),
                                       OneOf("server", kSwitch),
                                       OneOf("mrg_rxbuf", kSwitch),
                                       OneOf("in_order", kSwitch),
                                       OneOf("packed_vq", kSwitch),
                                       Number("speed", 0, UINT32_MAX),
                                       OneOf("vectorized", kSwitch)};
constexpr ArgumentKey kPcap[] = {
    Text("rx_pcap"),  Text("tx_pcap"), Text("rx_iface"),        Text("rx_iface_in"),
    Text("tx_iface"), Text("iface"),   Number("phy_mac", 0, 1), OneOf("infinite_rx", kSwitch)};

struct Driver {
  absl::string_view name;
  absl::Span<const ArgumentKey> keys;
};

constexpr Driver kDrivers[] = {
    {"packet", kPacket},
    {"net_af_packet", kAfPacket},
    {"net_af_xdp", kAfXdp},
    {"net_tap", kTap},
    {"net_memif", kMemif},
    {"net_vhost", kVhost},
    {"net_virtio_user", kVirtioUser},
    {"net_pcap", kPcap},
    {"net_ring", {}},
};

// The driver of a port named as the driver and a number ("net_tap12"), or "packet:eth0"; null: not
// in kDrivers.
const Driver* DriverOf(absl::string_view port) {
  const absl::string_view device = port.substr(0, port.find_first_of(",:"));
  for (const Driver& driver : kDrivers) {
    absl::string_view number = device;
    if (!absl::ConsumePrefix(&number, driver.name)) continue;
    if (std::all_of(number.begin(), number.end(), absl::ascii_isdigit)) return &driver;
  }
  return nullptr;
}

bool IsMac(absl::string_view text) {
  const std::vector<absl::string_view> bytes = absl::StrSplit(text, ':');
  return bytes.size() == 6 && std::all_of(bytes.begin(), bytes.end(), [](absl::string_view byte) {
           return (byte.size() == 1 || byte.size() == 2) &&
                  std::all_of(byte.begin(), byte.end(), absl::ascii_isxdigit);
         });
}

bool IsOneOf(absl::string_view value, absl::string_view words) {
  if (value.empty()) return false;
  const std::vector<absl::string_view> all = absl::StrSplit(words, '|');
  return std::find(all.begin(), all.end(), value) != all.end();
}

// Description of the valid values of `key`; empty: `value` is valid.
std::string Wanted(const ArgumentKey& key, absl::string_view value) {
  uint64_t number = 0;
  switch (key.takes) {
    case Takes::kText:
      return value.empty() ? "a value" : "";
    case Takes::kMac:
      return IsMac(value) || IsOneOf(value, key.words) ? ""
                                                       : "a MAC address, like 02:00:00:00:00:01";
    case Takes::kOneOf:
      return IsOneOf(value, key.words) ? "" : absl::StrCat("one of ", key.words);
    case Takes::kNumber:
      break;
  }
  if (absl::SimpleAtoi(value, &number) && number >= key.least && number <= key.most) return "";
  return absl::StrCat("a number from ", key.least, " to ", key.most);
}

std::string NamesOf(const Driver& driver) {
  return absl::StrJoin(driver.keys, ", ", [](std::string* out, const ArgumentKey& key) {
    absl::StrAppend(out, key.name);
  });
}

std::string FaultOf(const PortArgument& argument, const Driver& driver) {
  const auto* const key =
      std::find_if(driver.keys.begin(), driver.keys.end(),
                   [&](const ArgumentKey& each) { return each.name == argument.key; });
  if (key == driver.keys.end()) {
    return absl::StrCat(driver.name, " has no argument \"", argument.key, "\" (it has ",
                        NamesOf(driver), ")");
  }
  const std::string wanted = Wanted(*key, argument.value);
  if (wanted.empty()) return "";
  return absl::StrCat("\"", argument.key, "\" must be ", wanted, ", not \"", argument.value, "\"");
}

}  // namespace

std::vector<PortArgument> PortArguments(absl::string_view port) {
  const std::vector<absl::string_view> parts = absl::StrSplit(port, ',');
  std::vector<PortArgument> out;
  for (size_t i = 1; i < parts.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(parts[i], absl::MaxSplits('=', 1));
    out.push_back({pair.first, pair.second});
  }
  return out;
}

std::string ValueOf(const std::vector<PortArgument>& arguments, absl::string_view key) {
  const auto found = std::find_if(arguments.begin(), arguments.end(),
                                  [&](const PortArgument& each) { return each.key == key; });
  return found == arguments.end() ? "" : std::string(found->value);
}

std::string NetworkDeviceOf(absl::string_view port) {
  const Driver* const driver = DriverOf(port);
  std::string interface = dataplane::PacketInterface(std::string(port));
  if (!interface.empty()) return interface;
  // `iface` of net_vhost is a socket, not a network device.
  if (driver == nullptr || (driver->name != "net_af_packet" && driver->name != "net_af_xdp")) {
    return "";
  }
  return ValueOf(PortArguments(port), "iface");
}

std::string FaultOfPortArguments(absl::string_view port) {
  const Driver* const driver = DriverOf(port);
  if (driver == nullptr) return "";
  const std::vector<PortArgument> arguments = PortArguments(port);
  if (!arguments.empty() && driver->keys.empty()) {
    return "takes no arguments: it is a loopback (docs/kernel-devices.md)";
  }
  for (const PortArgument& argument : arguments) {
    std::string fault = FaultOf(argument, *driver);
    if (!fault.empty()) return fault;
  }
  return "";
}

}  // namespace roci::control
