// Finds the descriptors that a DPDK driver has opened for a port and does not expose. Control
// thread.
#pragma once

#include <vector>

namespace roci::dataplane {

class DriverDescriptors {
 public:
  // Construct before the driver opens the port: notes the descriptors that are not of the port.
  DriverDescriptors();

  // Sockets of `family` and eventfds that were opened since, in the order of their numbers, which
  // is the order in which one thread opens them.
  std::vector<int> Sockets(int family) const;
  std::vector<int> EventFds() const;

 private:
  std::vector<int> before_;
};

}  // namespace roci::dataplane
