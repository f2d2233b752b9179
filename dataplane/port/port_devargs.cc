#include "dataplane/port/port_devargs.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace roci::dataplane {
namespace {

constexpr uint32_t kDefaultBufferBytes = 2048;  // of both drivers
// Upper bound of the kernel's header before a frame in a ring (packet(7)).
constexpr uint32_t kRingHeaderBytes = 128;

// "net_x,a=1,b=2", "b" -> "2"; empty: no such key.
std::string_view ValueOf(std::string_view devargs, std::string_view key) {
  for (size_t at = devargs.find(','); at != std::string_view::npos;) {
    const size_t end = devargs.find(',', at + 1);
    const std::string_view item = devargs.substr(at + 1, end - at - 1);
    if (item.starts_with(key) && item.substr(key.size()).starts_with('=')) {
      return item.substr(key.size() + 1);
    }
    at = end;
  }
  return {};
}

uint32_t NumberOf(std::string_view devargs, std::string_view key, uint32_t otherwise) {
  const std::string_view text = ValueOf(devargs, key);
  uint32_t value = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

uint32_t Less(uint32_t bytes, uint32_t overhead) { return bytes > overhead ? bytes - overhead : 0; }

// The kernel writes into net_af_xdp's buffers. A buffer with the pool's header and the mbuf must
// fit a page. The pool adds no padding to an odd number of cache lines.
constexpr uint16_t kXdpBufferBytes = 4096 - 64 - 64 - 128;
// Before the frame: DPDK's headroom and the kernel's.
constexpr uint32_t kXdpHeadroomBytes = 128 + 256;

}  // namespace

bool IsPciAddress(const std::string& devargs) {
  const std::string name = devargs.substr(0, devargs.find(','));
  return name.find('.') != std::string::npos && name.find(':') != std::string::npos &&
         name.find_first_not_of("0123456789abcdefABCDEF:.") == std::string::npos;
}

std::string PortName(const std::string& devargs) {
  const std::string name = devargs.substr(0, devargs.find(','));
  const bool is_short = IsPciAddress(devargs) && std::count(name.begin(), name.end(), ':') == 1;
  return is_short ? "0000:" + name : name;
}

bool HasArgument(const std::string& devargs, std::string_view key) {
  return !ValueOf(devargs, key).empty();
}

uint32_t ArgumentOf(const std::string& devargs, std::string_view key, uint32_t otherwise) {
  return NumberOf(devargs, key, otherwise);
}

std::string PacketInterface(const std::string& devargs) {
  constexpr std::string_view kPrefix = "packet:";
  if (!devargs.starts_with(kPrefix)) return "";
  return devargs.substr(kPrefix.size(), devargs.find(',') - kPrefix.size());
}

bool JoinsFrames(const std::string& devargs) { return ValueOf(devargs, "gso") != "0"; }

std::string AsEthdev(const std::string& devargs) {
  const std::string interface = PacketInterface(devargs);
  return interface.empty() ? devargs : "net_af_packet_" + interface + ",iface=" + interface;
}

std::string WithDefaults(std::string devargs, uint32_t mtu) {
  const bool is_small = mtu <= kDefaultBufferBytes - kRingHeaderBytes - kEthernetOverheadBytes;
  if (devargs.starts_with("net_af_packet") && !is_small && ValueOf(devargs, "framesz").empty() &&
      ValueOf(devargs, "blocksz").empty()) {
    // A block holds whole frames; as many frames as the default.
    devargs += ",blocksz=65536,framesz=8192";
    return HasArgument(devargs, "framecnt") ? devargs : devargs + ",framecnt=512";
  }
  if (devargs.starts_with("net_pcap") && !ValueOf(devargs, "iface").empty() &&
      ValueOf(devargs, "phy_mac").empty()) {
    return devargs + ",phy_mac=1";
  }
  return devargs;
}

bool LinkBringsBack(const std::string& devargs) { return devargs.starts_with("net_ring"); }

bool AddressIsOfOtherEnd(const std::string& devargs) {
  return devargs.starts_with("net_tap") && ValueOf(devargs, "remote").empty();
}

std::optional<uint32_t> RoomOf(const std::string& devargs) {
  // The driver supports frames of several buffers, but DPDK 22.11 corrupts them once the ring has
  // wrapped, as it leaves old flags in the descriptors.
  if (devargs.starts_with("net_memif")) {
    return Less(NumberOf(devargs, "bsize", kDefaultBufferBytes), kEthernetOverheadBytes);
  }
  if (devargs.starts_with("net_af_packet")) {
    return Less(NumberOf(devargs, "framesz", kDefaultBufferBytes),
                kRingHeaderBytes + kEthernetOverheadBytes);
  }
  if (devargs.starts_with("net_af_xdp")) {
    return kXdpBufferBytes - kXdpHeadroomBytes - kEthernetOverheadBytes;
  }
  return PcapInterface(devargs).empty() ? std::nullopt : std::optional(UINT32_MAX);
}

bool ConnectsAtStart(const std::string& devargs) {
  const std::string_view role = ValueOf(devargs, "role");
  return devargs.starts_with("net_memif") && role != "server" && role != "master";
}

std::string MemifListenerOf(const std::string& devargs) {
  if (!devargs.starts_with("net_memif") || ConnectsAtStart(devargs)) return "";
  const std::string_view path = ValueOf(devargs, "socket");
  return path.empty() ? "/run/memif.sock" : std::string(path);
}

std::string ListeningSocketOf(const std::string& devargs) {
  if (devargs.starts_with("net_memif")) {
    return ValueOf(devargs, "socket-abstract") == "no" ? MemifListenerOf(devargs) : "";
  }
  if (devargs.starts_with("net_vhost")) {
    return ValueOf(devargs, "client") == "1" ? "" : std::string(ValueOf(devargs, "iface"));
  }
  const bool listens = devargs.starts_with("net_virtio_user") && ValueOf(devargs, "server") == "1";
  return listens ? std::string(ValueOf(devargs, "path")) : "";
}

std::string PcapInterface(const std::string& devargs) {
  if (!devargs.starts_with("net_pcap")) return "";
  const std::string_view both = ValueOf(devargs, "iface");
  return std::string(both.empty() ? ValueOf(devargs, "tx_iface") : both);
}

std::optional<uint16_t> BufferBytesOf(const std::string& devargs) {
  return devargs.starts_with("net_af_xdp") ? std::optional(kXdpBufferBytes) : std::nullopt;
}

}  // namespace roci::dataplane
