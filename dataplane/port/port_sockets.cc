#include "dataplane/port/port_sockets.h"

#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <sys/socket.h>

namespace roci::dataplane {

void PortSockets::Find(const std::string& driver, const DriverDescriptors& opened) {
  if (driver == "net_af_packet") packet_ = opened.Sockets(AF_PACKET);
  if (driver == "net_af_xdp") xdp_ = opened.Sockets(AF_XDP);
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
