// Raw packet queue pairs through libibverbs, and frames for tests.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {

using Mac = std::array<uint8_t, 6>;
using Frame = std::vector<uint8_t>;

/// The device's own address, from its link-local GID.
Mac MacOf(OpenDevice& device);

struct FrameOptions {
  Mac dst{0x02, 0, 0, 0, 0, 1};
  Mac src{0x02, 0, 0, 0, 0, 2};
  int vlan = -1;  // TCI
  bool ipv6 = false;
  bool tcp = false;
  uint32_t src_ip = 0x0A090801;  // IPv4, or the last bytes of the IPv6 address
  uint32_t dst_ip = 0x0A090802;
  uint16_t src_port = 1234;
  uint16_t dst_port = 5678;
  uint8_t tos = 0;
  uint8_t ttl = 64;
  size_t payload = 40;
};
Frame MakeFrame(const FrameOptions& options);

/// A raw packet queue pair in RTS with a CQ and buffers of its own, and receives posted.
class RawEndpoint {
 public:
  static constexpr uint32_t kReceives = 64;
  static constexpr uint32_t kBufferBytes = 4608;
  /// `extended`: a CQ that tells flow tags.
  explicit RawEndpoint(OpenDevice& device, bool extended = false);
  ~RawEndpoint();
  RawEndpoint(const RawEndpoint&) = delete;
  RawEndpoint& operator=(const RawEndpoint&) = delete;

  /// Sends and waits for the completion's status.
  ibv_wc_status Send(std::span<const uint8_t> frame, unsigned flags = 0);
  int Post(std::span<const uint8_t> frame, uint64_t wr_id, unsigned flags = 0);
  int PostRecv(uint32_t slot, uint32_t bytes = kBufferBytes);
  /// The next frame; empty after a timeout.
  Frame Receive();
  bool IsQuiet(int ms = 20);

  OpenDevice& device;
  ibv_cq_ex* cq_ex = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  Buffer out;
  Buffer in;
  uint32_t last_tag = 0;
  unsigned last_flags = 0;  // wc_flags of the last received frame

 private:
  bool Poll(ibv_wc* wc);
};

/// A flow rule: its specifications follow one another.
class Rule {
 public:
  explicit Rule(ibv_flow_attr_type type = IBV_FLOW_ATTR_NORMAL, uint16_t priority = 0);
  Rule& Eth(const Mac* dst, const Mac* src = nullptr, int ether_type = -1, int vlan = -1);
  Rule& Ipv4(uint32_t src, uint32_t src_mask, uint32_t dst, uint32_t dst_mask);
  Rule& Ipv4Ext(int proto, int tos = -1, int ttl = -1);
  Rule& Ipv6(uint32_t src, uint32_t dst, int next_header = -1);
  Rule& Ports(bool tcp, int src, int dst);
  Rule& Tag(uint32_t tag);
  Rule& Drop();
  Rule& Count(ibv_counters* counters);
  template <class Spec>
  Rule& Add(const Spec& spec) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&spec);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(spec));
    ++attr().num_of_specs;
    return *this;
  }
  ibv_flow_attr& attr() { return *reinterpret_cast<ibv_flow_attr*>(bytes_.data()); }
  /// Null and errno on failure.
  ibv_flow* On(ibv_qp* qp) { return ibv_create_flow(qp, &attr()); }

 private:
  std::vector<uint8_t> bytes_;
};

}  // namespace roci::testing
