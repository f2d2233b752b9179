// The sockets by which net_af_packet and net_af_xdp reach a network device: what their full rings
// have missed, which the kernel counts and DPDK's drivers do not pass on. DPDK gives no way to the
// sockets, so they are found among the process's descriptors. Control thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace roci::dataplane {

class PortSockets {
 public:
  // Before a port is opened: to know which sockets are not its own.
  PortSockets();
  // Once `driver` (DPDK's name) has opened a port: those that are new. Others' sockets are left
  // alone; libpcap counts by itself, and the kernel's counter begins anew when it is read.
  void Find(const std::string& driver);

  // Frames since the port was opened, for which the kernel found no room.
  uint64_t missed();

 private:
  std::vector<int> before_;
  std::vector<int> packet_;  // AF_PACKET, of net_af_packet; the driver's
  std::vector<int> xdp_;     // AF_XDP, of net_af_xdp; the driver's
  uint64_t packet_missed_ = 0;
};

}  // namespace roci::dataplane
