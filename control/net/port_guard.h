// Keeps the kernel quiet about RoCE on network devices that it shares with us: a UDP socket on port
// 4791 which drops everything. Without one the kernel answers each packet to an address that is its
// own as well with ICMP "port unreachable".
#pragma once

#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// For the network namespace of the caller and both families, or IPv4 alone where the kernel has no
// IPv6 (ipv6.disable=1); as long as the descriptor is open.
// Several daemons may each have one. Errors as of socket(2) and bind(2): where rdma_rxe has the
// port, AlreadyExists, and the kernel is quiet already.
absl::StatusOr<UniqueFd> GuardRocePort();

}  // namespace roci::control
