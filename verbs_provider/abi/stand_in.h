// Markers of Rocinante's devices in the emulated sysfs tree, and the placeholder for their
// character devices.
#pragma once

namespace roci::abi {

// A file in class/infiniband/DEV and class/infiniband_verbs/uverbsN of the emulated sysfs tree: the
// absolute path of the socket of the device's daemon, and a line feed. No kernel device has it. The
// plugin finds the daemon by it even if the program has cleared its environment.
inline constexpr char kSocketAttribute[] = "roci_socket";
// Device number ("dev") of the placeholder for uverbsN and rdma_cm: /dev/full, where every write
// fails and every ioctl returns ENOTTY.
inline constexpr unsigned kStandInMajor = 1;
inline constexpr unsigned kStandInMinor = 7;
inline constexpr char kStandInPath[] = "/dev/full";

}  // namespace roci::abi
