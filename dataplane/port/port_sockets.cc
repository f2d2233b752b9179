#include "dataplane/port/port_sockets.h"

#include <dirent.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string_view>

namespace roci::dataplane {
namespace {

// The open sockets of `family` in this process.
std::vector<int> OpenSockets(int family) {
  std::vector<int> out;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (folder == nullptr) return out;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name(entry->d_name);
    int fd = -1;
    std::from_chars(name.data(), name.data() + name.size(), fd);
    int domain = -1;
    socklen_t bytes = sizeof(domain);
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0) continue;
    if (domain == family) out.push_back(fd);
  }
  return out;
}

std::vector<int> Without(std::vector<int> sockets, const std::vector<int>& others) {
  std::erase_if(
      sockets, [&](int fd) { return std::find(others.begin(), others.end(), fd) != others.end(); });
  return sockets;
}

}  // namespace

PortSockets::PortSockets() : before_(OpenSockets(AF_PACKET)) {
  const std::vector<int> xdp = OpenSockets(AF_XDP);
  before_.insert(before_.end(), xdp.begin(), xdp.end());
}

void PortSockets::Find(const std::string& driver) {
  if (driver == "net_af_packet") packet_ = Without(OpenSockets(AF_PACKET), before_);
  if (driver == "net_af_xdp") xdp_ = Without(OpenSockets(AF_XDP), before_);
}

uint64_t PortSockets::missed() {
  for (const int fd : packet_) {
    tpacket_stats statistics{};
    socklen_t bytes = sizeof(statistics);
    if (getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &statistics, &bytes) == 0) {
      packet_missed_ += statistics.tp_drops;
    }
  }
  uint64_t missed = packet_missed_;
  for (const int fd : xdp_) {
    xdp_statistics statistics{};
    socklen_t bytes = sizeof(statistics);
    // The driver itself reports rx_dropped.
    if (getsockopt(fd, SOL_XDP, XDP_STATISTICS, &statistics, &bytes) == 0) {
      missed += statistics.rx_ring_full;
    }
  }
  return missed;
}

}  // namespace roci::dataplane
