// One UD queue pair through libibverbs, for tests that run under `roci run`.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {

inline constexpr uint32_t kQkey = 0x11111111;
inline constexpr size_t kGrhBytes = 40;

/// A GID of the port with or without an IPv4 address; aborts if there is none.
struct GidChoice {
  ibv_gid gid;
  uint8_t index;
};
GidChoice FindGid(OpenDevice& device, bool ipv4);
ibv_gid GidOf(const char* ip);

class DatagramEndpoint {
 public:
  /// In RTS. `create_flags`: enum ibv_qp_create_flags.
  explicit DatagramEndpoint(OpenDevice& device, uint32_t create_flags = 0, uint32_t max_wr = 64);
  ~DatagramEndpoint();
  DatagramEndpoint(const DatagramEndpoint&) = delete;
  DatagramEndpoint& operator=(const DatagramEndpoint&) = delete;

  ibv_ah* CreateAh(const ibv_gid& destination, uint8_t sgid_index);
  int PostSend(ibv_ah* ah, uint32_t remote_qpn, ibv_sge sge, uint32_t qkey = kQkey,
               uint64_t wr_id = 1);
  int PostRecv(ibv_sge sge, uint64_t wr_id = 2) { return PostReceive(qp, sge, wr_id); }
  ibv_wc Wait() { return WaitForCompletion(cq); }
  bool IsQuiet(int ms) { return testing::IsQuiet(cq, ms); }

  OpenDevice& device;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
};

}  // namespace roci::testing
