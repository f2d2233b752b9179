#include "dataplane/port_devargs.h"

#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

namespace roci::dataplane {
namespace {

constexpr uint32_t kDefaultBufferBytes = 2048;  // of both drivers
// Ethernet header, FCS and one VLAN tag.
constexpr uint32_t kEthernetOverhead = 14 + 4 + 4;
// The kernel's header in front of a frame in a ring (packet(7)), generously.
constexpr uint32_t kRingHeader = 128;

// "net_x,a=1,b=2", "b" -> "2"; empty: it is not there.
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

// Of a network device of the kernel's; nothing where it is not there.
std::optional<uint32_t> KernelMtu(std::string_view interface) {
  ifreq request{};
  if (interface.empty() || interface.size() >= sizeof(request.ifr_name)) return std::nullopt;
  std::memcpy(request.ifr_name, interface.data(), interface.size());
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  const bool done = ioctl(fd, SIOCGIFMTU, &request) == 0;
  close(fd);
  return done ? std::optional(static_cast<uint32_t>(request.ifr_mtu)) : std::nullopt;
}

// The network device that a net_pcap port sends to; empty: it writes a file, or nothing.
std::string_view PcapInterface(std::string_view devargs) {
  const std::string_view both = ValueOf(devargs, "iface");
  return both.empty() ? ValueOf(devargs, "tx_iface") : both;
}

uint32_t Less(uint32_t bytes, uint32_t overhead) { return bytes > overhead ? bytes - overhead : 0; }

// The kernel writes into net_af_xdp's buffers, of which none may be larger than a page with all
// that DPDK has in it: the pool's header and the mbuf. An odd number of cache lines is what the
// pool adds no padding to.
constexpr uint16_t kXdpBufferBytes = 4096 - 64 - 64 - 128;
// In front of the frame: DPDK's headroom and the kernel's.
constexpr uint32_t kXdpHeadroom = 128 + 256;

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

std::string WithDefaults(std::string devargs, uint32_t mtu) {
  const bool is_small = mtu <= kDefaultBufferBytes - kRingHeader - kEthernetOverhead;
  if (devargs.starts_with("net_af_packet") && !is_small && ValueOf(devargs, "framesz").empty() &&
      ValueOf(devargs, "blocksz").empty()) {
    // Whole frames to a block; as many as the driver has of small ones.
    return devargs + ",blocksz=65536,framesz=8192,framecnt=512";
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

std::optional<uint32_t> MtuOf(const std::string& devargs) {
  if (devargs.starts_with("net_memif")) {
    return Less(NumberOf(devargs, "bsize", kDefaultBufferBytes), kEthernetOverhead);
  }
  if (devargs.starts_with("net_pcap")) return KernelMtu(PcapInterface(devargs));
  uint32_t room = 0;
  if (devargs.starts_with("net_af_packet")) {
    room = Less(NumberOf(devargs, "framesz", kDefaultBufferBytes), kRingHeader + kEthernetOverhead);
  } else if (devargs.starts_with("net_af_xdp")) {
    room = kXdpBufferBytes - kXdpHeadroom - kEthernetOverhead;
  } else {
    return std::nullopt;
  }
  return std::min(room, KernelMtu(ValueOf(devargs, "iface")).value_or(room));
}

std::optional<uint16_t> BufferBytesOf(const std::string& devargs) {
  return devargs.starts_with("net_af_xdp") ? std::optional(kXdpBufferBytes) : std::nullopt;
}

}  // namespace roci::dataplane
