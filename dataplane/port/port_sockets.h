// Reads how many frames the full rings of net_af_packet and net_af_xdp, and the full sockets of
// PacketSockets, have missed. The kernel counts them per socket, but DPDK's drivers do not report
// them. Control thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/port/driver_descriptors.h"

namespace roci::dataplane {

class PortSockets {
 public:
  // Call once `driver` (DPDK's name) has opened the port, before the daemon opens sockets on the
  // network device. Sockets of other drivers are not read, as reading resets the kernel's counter
  // and libpcap counts by itself.
  void Find(const std::string& driver, const DriverDescriptors& opened);
  // The sockets of PacketSockets.
  void Use(std::vector<int> packet) { packet_ = std::move(packet); }

  // The sockets of the receive queues, in their order; empty if the driver has none.
  const std::vector<int>& descriptors() const { return packet_.empty() ? xdp_ : packet_; }

  // Frames since the port was opened that did not fit the ring.
  uint64_t missed();

 private:
  std::vector<int> packet_;  // AF_PACKET, owned by net_af_packet or PacketSockets
  std::vector<int> xdp_;     // AF_XDP, owned by net_af_xdp
  uint64_t packet_missed_ = 0;
};

}  // namespace roci::dataplane
