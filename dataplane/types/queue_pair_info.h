// The state of a queue pair, for people.
#pragma once

#include <cstdint>

#include "roce/qp.h"
#include "roce/qp_attributes.h"
#include "roce/types.h"

namespace roci::dataplane {

// A row of `roci show qps`.
struct QueuePairInfo {
  roce::Qpn qpn;
  roce::QpType type;
  roce::QpState state;
  uint32_t handle = 0;
  uint32_t pd = 0;
  roce::QpAttributes attributes;
  roce::QpDebug debug;
  roce::Gid local_gid;
  roce::Gid remote_gid;
  uint16_t vlan = 0;
  uint32_t send_taken = 0;  // WQEs taken from the rings so far
  uint32_t recv_taken = 0;
  uint64_t tx_packets = 0;
  uint64_t rx_packets = 0;
  uint64_t drops = 0;
  bool active = false;  // in the lcore's list of queue pairs that it polls
};

}  // namespace roci::dataplane
