// Whether an adapter that DPDK shares with its kernel driver keeps RoCE frames for itself.
#pragma once

#include <string>

namespace roci::control {

// The name of the kernel's RDMA device on the mlx5 adapter at PCI address `port` (devargs) if that
// device speaks RoCE v2: the adapter then delivers no frame to UDP port 4791 to DPDK. Empty:
// nothing is known of it. `sysfs` is where sysfs is mounted; needs no privileges.
std::string KernelRoceOf(const std::string& port, const std::string& sysfs = "/sys");

}  // namespace roci::control
