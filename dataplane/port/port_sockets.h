// Reads how many frames the full rings of net_af_packet and net_af_xdp have missed. The kernel
// counts them per socket, but DPDK's drivers do not report them and do not expose their sockets, so
// the sockets are found among the process's descriptors. Control thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace roci::dataplane {

class PortSockets {
 public:
  // Construct before the port is opened: notes the sockets that are not of the port.
  PortSockets();
  // Call once `driver` (DPDK's name) has opened the port: finds the new sockets. Other sockets are
  // not read, as reading resets the kernel's counter and libpcap counts by itself.
  void Find(const std::string& driver);

  // Frames since the port was opened that did not fit the ring.
  uint64_t missed();

 private:
  std::vector<int> before_;
  std::vector<int> packet_;  // AF_PACKET, owned by net_af_packet
  std::vector<int> xdp_;     // AF_XDP, owned by net_af_xdp
  uint64_t packet_missed_ = 0;
};

}  // namespace roci::dataplane
