// A UDP socket on port 4791 that drops all packets, for network devices that the kernel shares with
// us. Without it, the kernel answers each RoCE packet to one of its addresses with ICMP "port
// unreachable".
#pragma once

#include "absl/status/statusor.h"
#include "control/loop/unique_fd.h"

namespace roci::control {

// Binds the port for IPv4 and IPv6 (only IPv4 with ipv6.disable=1) in the caller's network
// namespace, until the descriptor is closed. Several daemons can do so at the same time. Errors of
// socket(2) and bind(2). AlreadyExists: rdma_rxe has the port; then the socket is not needed.
absl::StatusOr<UniqueFd> OpenRoceUdpSocket();

}  // namespace roci::control
