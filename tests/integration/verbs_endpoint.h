// One end of an RC, UC or XRC connection through libibverbs, for tests that run under `roci run`.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace roci::testing {

/// Time limit for events that should happen at once.
inline constexpr int kPatience_ms = 60000;

/// An open device with a PD. Each failure aborts the test program, since no test is valid without
/// it.
class OpenDevice {
 public:
  explicit OpenDevice(const std::string& name);
  ~OpenDevice();
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_device_attr attr = {};
  ibv_port_attr port = {};
  /// The first RoCE v2 GID that maps an IPv4 address, else the first RoCE v2 GID.
  int gid_index = -1;
  ibv_gid gid = {};
};

/// A registered buffer. Its contents are a pattern of `seed`.
class Buffer {
 public:
  Buffer(OpenDevice& device, size_t size, uint32_t seed,
         int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() { return data_; }
  size_t size() const { return size_; }
  uint64_t address() const { return reinterpret_cast<uintptr_t>(data_); }
  uint32_t lkey() const { return mr->lkey; }
  uint32_t rkey() const { return mr->rkey; }
  ibv_sge Sge(size_t offset, size_t length) const {
    return {address() + offset, static_cast<uint32_t>(length), mr->lkey};
  }
  void Fill(uint32_t seed);

  ibv_mr* mr = nullptr;

 private:
  uint8_t* data_;
  size_t size_;
};

/// Byte `i` of the pattern of `seed`.
uint8_t PatternByte(uint32_t seed, size_t i);

struct EndpointOptions {
  uint32_t max_send_wr = 64;
  uint32_t max_recv_wr = 64;
  uint32_t max_sge = 4;
  uint32_t max_inline = 64;
  int cq_entries = 256;
  bool with_channel = false;
  bool sq_sig_all = false;
  uint8_t timeout = 16;  // 4.096 us << 16 = 0.27 s: a busy machine delays answers
  uint8_t retry_count = 3;
  uint8_t rnr_retry = 1;
  uint8_t max_rd_atomic = 4;  // of both ends
  ibv_mtu mtu = IBV_MTU_1024;
  ibv_srq* srq = nullptr;  // instead of a receive queue
  ibv_qp_type type = IBV_QPT_RC;
};

/// Posts one receive of one SGE.
int PostReceive(ibv_qp* qp, ibv_sge sge, uint64_t wr_id);
/// Waits for one completion. Its status is IBV_WC_GENERAL_ERR after a timeout.
ibv_wc WaitForCompletion(ibv_cq* cq);
/// True if nothing completes within `ms`.
bool IsQuiet(ibv_cq* cq, int ms);

/// A QP with a CQ of its own.
class Endpoint {
 public:
  explicit Endpoint(OpenDevice& device, const EndpointOptions& options = {});
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  /// RESET -> INIT -> RTR -> RTS towards `peer`. 0 or the errno of the first step that failed.
  int Connect(const Endpoint& peer);
  int ToInit();
  int ToRtr(const Endpoint& peer);
  int ToRts();
  int ToState(ibv_qp_state state);

  /// Destroys its CQ and creates the QP again, with `other`, which it takes over. False: it failed.
  bool ReplaceCq(ibv_cq* other);

  int Post(ibv_send_wr& wr);
  /// Posts one request of one SGE.
  int PostSend(ibv_wr_opcode opcode, ibv_sge sge, unsigned flags = IBV_SEND_SIGNALED,
               uint64_t remote = 0, uint32_t rkey = 0, uint64_t wr_id = 1);
  int PostRecv(ibv_sge sge, uint64_t wr_id = 2) { return PostReceive(qp, sge, wr_id); }
  ibv_wc Wait() { return WaitForCompletion(cq); }
  bool IsQuiet(int ms) { return testing::IsQuiet(cq, ms); }
  /// Waits for the completion of `wr_id` and expects it to be a success.
  void ExpectSuccess(uint64_t wr_id = 1);

  OpenDevice& device;
  EndpointOptions options;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  ibv_qp_cap cap = {};
};

/// Two connected endpoints on the two devices.
class Pair {
 public:
  explicit Pair(const EndpointOptions& options = {});

  OpenDevice& near_device;
  OpenDevice& far_device;
  Endpoint near;
  Endpoint far;
};

/// The devices roci0 and roci1, opened once for the whole program.
OpenDevice& DeviceZero();
OpenDevice& DeviceOne();

}  // namespace roci::testing
