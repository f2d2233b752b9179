// Parameters that both ends of a simulated connection share, as programs set them by ibv_modify_qp.
#pragma once

#include <array>
#include <cstdint>

#include "roce/qp_attributes.h"
#include "roce/qp_context.h"
#include "roce/types.h"

namespace roci::sim {

struct Connection {
  // Types of node 0 and node 1: both RC, or XRC send and XRC receive.
  std::array<roce::QpType, 2> types = {roce::QpType::kRc, roce::QpType::kRc};
  bool shares_receives = false;  // node 1 has a shared receive queue
  roce::PathMtu mtu = roce::PathMtu::k1024;
  roce::QpLimits limits;
  // Which node asks for what is missing alone, and repeats alone what it is asked for.
  std::array<bool, 2> repeats_selectively = {};
  // Remote access that either node grants.
  uint32_t access_flags = roce::kQpAccessRemoteWrite | roce::kQpAccessRemoteRead |
                          roce::kQpAccessRemoteAtomic | roce::kQpAccessFlushGlobal |
                          roce::kQpAccessFlushPersistent;
  uint8_t timeout = 10;
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;
  uint8_t max_rd_atomic = 4;
  uint8_t max_dest_rd_atomic = 0;  // 0: the same as max_rd_atomic
  uint32_t records = 32;           // in-flight records of each requester, a power of two
  uint32_t rate_limit_kbps = 0;    // of each requester; 0: none
  uint32_t rate_burst_bytes = 0;   // as in QpAttributes
  bool ipv6 = false;
  bool controls_congestion = false;
  uint32_t room_to_keep = UINT32_MAX;  // early packets that each node may keep
  std::array<roce::Psn, 2> first_psn;  // of the requests of node 0 and node 1
};

inline uint8_t MaxDestRdAtomic(const Connection& connection) {
  return connection.max_dest_rd_atomic != 0 ? connection.max_dest_rd_atomic
                                            : connection.max_rd_atomic;
}

}  // namespace roci::sim
