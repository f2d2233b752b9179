// What marks a device of ours in the tree that looks like sysfs, and what stands in for its
// character devices.
#pragma once

namespace roci::abi {

// A file in class/infiniband/DEV and class/infiniband_verbs/uverbsN of that tree: the absolute path
// of the socket of the daemon that owns the device, and a line feed. No kernel device has it. So a
// plugin finds the right daemon also where the program has cleared its environment.
inline constexpr char kSocketAttribute[] = "roci_socket";
// Device number ("dev") of the character device that stands in for uverbsN and rdma_cm: /dev/full,
// which fails every write and answers ENOTTY to every ioctl.
inline constexpr unsigned kStandInMajor = 1;
inline constexpr unsigned kStandInMinor = 7;
inline constexpr char kStandInPath[] = "/dev/full";

}  // namespace roci::abi
