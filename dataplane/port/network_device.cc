#include "dataplane/port/network_device.h"

#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace roci::dataplane {
namespace {

// `request` names the device. 0: its driver does not know the speed, or the link is down.
uint32_t SpeedOf(int fd, ifreq& request) {
  ethtool_cmd command{};
  command.cmd = ETHTOOL_GSET;
  request.ifr_data = reinterpret_cast<char*>(&command);
  if (ioctl(fd, SIOCETHTOOL, &request) != 0) return 0;
  const uint32_t speed = ethtool_cmd_speed(&command);
  // Old drivers report unknown in 16 bits.
  const bool is_known = speed != static_cast<uint32_t>(SPEED_UNKNOWN) && speed != UINT16_MAX;
  return is_known ? speed : 0;
}

}  // namespace

std::optional<NetworkDevice> ReadNetworkDevice(uint32_t index) {
  const Fd fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return std::nullopt;
  ifreq request{};
  request.ifr_ifindex = static_cast<int>(index);
  if (ioctl(fd.get(), SIOCGIFNAME, &request) != 0) return std::nullopt;
  NetworkDevice out;
  if (ioctl(fd.get(), SIOCGIFFLAGS, &request) != 0) return std::nullopt;
  out.enabled = (request.ifr_flags & IFF_UP) != 0;
  out.running = out.enabled && (request.ifr_flags & IFF_RUNNING) != 0;
  if (ioctl(fd.get(), SIOCGIFMTU, &request) != 0) return std::nullopt;
  out.mtu = static_cast<uint32_t>(request.ifr_mtu);
  out.speed_mbps = SpeedOf(fd.get(), request);
  return out;
}

Fd HoldReception(uint32_t index, Reception what) {
  // Protocol 0: the socket receives nothing.
  Fd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  packet_mreq request{};
  request.mr_ifindex = static_cast<int>(index);
  request.mr_type = what == Reception::kAllGroups ? PACKET_MR_ALLMULTI : PACKET_MR_PROMISC;
  if (!fd.valid() ||
      setsockopt(fd.get(), SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof(request)) != 0) {
    return Fd();
  }
  return fd;
}

void TakeErrors(const std::vector<int>& sockets) {
  for (const int fd : sockets) {
    int error = 0;
    socklen_t bytes = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
  }
}

}  // namespace roci::dataplane
