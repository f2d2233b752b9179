#include "tests/integration/verbs_endpoint.h"

#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace roci::testing {
namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

ibv_context* Open(const std::string& name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  Require(list != nullptr, "ibv_get_device_list");
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (name == ibv_get_device_name(list[i])) context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  return context;
}

using Clock = std::chrono::steady_clock;

}  // namespace

OpenDevice::OpenDevice(const std::string& name) {
  context = Open(name);
  Require(context != nullptr, ("open " + name).c_str());
  pd = ibv_alloc_pd(context);
  Require(pd != nullptr, "ibv_alloc_pd");
  Require(ibv_query_device(context, &attr) == 0, "ibv_query_device");
  Require(ibv_query_port(context, 1, &port) == 0, "ibv_query_port");
  std::vector<ibv_gid_entry> entries(static_cast<size_t>(port.gid_tbl_len));
  const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  Require(count > 0, "ibv_query_gid_table");
  static const uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF};
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    if (entry.gid_type != IBV_GID_TYPE_ROCE_V2) continue;
    const bool is_ipv4 = memcmp(entry.gid.raw, kMapped, sizeof(kMapped)) == 0;
    if (gid_index >= 0 && !is_ipv4) continue;
    gid_index = static_cast<int>(entry.gid_index);
    gid = entry.gid;
    if (is_ipv4) break;
  }
  Require(gid_index >= 0, "a RoCE v2 GID");
}

OpenDevice::~OpenDevice() {
  Require(ibv_dealloc_pd(pd) == 0, "ibv_dealloc_pd");
  Require(ibv_close_device(context) == 0, "ibv_close_device");
}

OpenDevice& DeviceZero() {
  static OpenDevice device("roci0");
  return device;
}

OpenDevice& DeviceOne() {
  static OpenDevice device("roci1");
  return device;
}

uint8_t PatternByte(uint32_t seed, size_t i) {
  uint64_t x = (uint64_t{seed} << 32) + i;
  x *= 0x9E3779B97F4A7C15;
  return static_cast<uint8_t>(x >> 56);
}

Buffer::Buffer(OpenDevice& device, size_t size, uint32_t seed, int access) : size_(size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  Require(memory != MAP_FAILED, "mmap");
  data_ = static_cast<uint8_t*>(memory);
  Fill(seed);
  mr = ibv_reg_mr(device.pd, data_, size, access);
  Require(mr != nullptr, "ibv_reg_mr");
}

Buffer::~Buffer() {
  Require(mr == nullptr || ibv_dereg_mr(mr) == 0, "ibv_dereg_mr");
  munmap(data_, size_);
}

void Buffer::Fill(uint32_t seed) {
  for (size_t i = 0; i < size_; ++i) data_[i] = PatternByte(seed, i);
}

Endpoint::Endpoint(OpenDevice& d, const EndpointOptions& o) : device(d), options(o) {
  if (options.with_channel) {
    channel = ibv_create_comp_channel(device.context);
    Require(channel != nullptr, "ibv_create_comp_channel");
  }
  cq = ibv_create_cq(device.context, options.cq_entries, this, channel, 0);
  Require(cq != nullptr, "ibv_create_cq");
  ibv_qp_init_attr init = {};
  init.send_cq = cq;
  init.recv_cq = cq;
  init.srq = options.srq;
  init.cap.max_send_wr = options.max_send_wr;
  init.cap.max_recv_wr = options.max_recv_wr;
  init.cap.max_send_sge = options.max_sge;
  init.cap.max_recv_sge = options.max_sge;
  init.cap.max_inline_data = options.max_inline;
  init.qp_type = options.type;
  init.sq_sig_all = options.sq_sig_all ? 1 : 0;
  qp = ibv_create_qp(device.pd, &init);
  Require(qp != nullptr, "ibv_create_qp");
  cap = init.cap;
}

Endpoint::~Endpoint() {
  Require(qp == nullptr || ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
  Require(cq == nullptr || ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
  Require(channel == nullptr || ibv_destroy_comp_channel(channel) == 0, "ibv_destroy_comp_channel");
}

int Endpoint::ToInit() {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int Endpoint::ToRtr(const Endpoint& peer) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = options.mtu;
  attr.dest_qp_num = peer.qp->qp_num;
  attr.rq_psn = peer.qp->qp_num & 0xFFFFFF;
  attr.max_dest_rd_atomic = options.max_rd_atomic;
  attr.min_rnr_timer = 1;  // 0.01 ms
  attr.ah_attr.is_global = 1;
  attr.ah_attr.grh.dgid = peer.device.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(device.gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  attr.ah_attr.port_num = 1;
  const int reliable =
      options.type != IBV_QPT_UC ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0;
  return ibv_modify_qp(
      qp, &attr,
      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | reliable);
}

int Endpoint::ToRts() {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = options.timeout;
  attr.retry_cnt = options.retry_count;
  attr.rnr_retry = options.rnr_retry;
  attr.sq_psn = qp->qp_num & 0xFFFFFF;
  attr.max_rd_atomic = options.max_rd_atomic;
  const int reliable = options.type != IBV_QPT_UC ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                                        IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC
                                                  : 0;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | reliable);
}

int Endpoint::ToState(ibv_qp_state state) {
  ibv_qp_attr attr = {};
  attr.qp_state = state;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

int Endpoint::Connect(const Endpoint& peer) {
  int error = ToInit();
  if (error == 0) error = ToRtr(peer);
  if (error == 0) error = ToRts();
  return error;
}

bool Endpoint::ReplaceCq(ibv_cq* other) {
  if (ibv_destroy_qp(qp) != 0 || ibv_destroy_cq(cq) != 0) return false;
  cq = other;
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.cap = cap;
  init.qp_type = IBV_QPT_RC;
  qp = ibv_create_qp(device.pd, &init);
  return qp != nullptr;
}

int Endpoint::Post(ibv_send_wr& wr) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

int Endpoint::PostSend(ibv_wr_opcode opcode, ibv_sge sge, unsigned flags, uint64_t remote,
                       uint32_t rkey, uint64_t wr_id) {
  ibv_send_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = flags;
  wr.wr.rdma.remote_addr = remote;
  wr.wr.rdma.rkey = rkey;
  return Post(wr);
}

int PostReceive(ibv_qp* qp, ibv_sge sge, uint64_t wr_id) {
  ibv_recv_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &wr, &bad);
}

ibv_wc WaitForCompletion(ibv_cq* cq) {
  ibv_wc wc = {};
  const auto end = Clock::now() + std::chrono::milliseconds(kPatience_ms);
  do {
    const int polled = ibv_poll_cq(cq, 1, &wc);
    if (polled == 1) return wc;
    EXPECT_EQ(polled, 0);
    if (polled < 0) break;
  } while (Clock::now() < end);
  ADD_FAILURE() << "no completion";
  wc.status = IBV_WC_GENERAL_ERR;
  wc.wr_id = ~uint64_t{0};
  return wc;
}

bool IsQuiet(ibv_cq* cq, int ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(ms);
  ibv_wc wc;
  do {
    if (ibv_poll_cq(cq, 1, &wc) != 0) return false;
  } while (Clock::now() < end);
  return true;
}

void Endpoint::ExpectSuccess(uint64_t wr_id) {
  const ibv_wc wc = Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
  EXPECT_EQ(wc.wr_id, wr_id);
  EXPECT_EQ(wc.qp_num, qp->qp_num);
}

Pair::Pair(const EndpointOptions& options)
    : near_device(DeviceZero()),
      far_device(DeviceOne()),
      near(near_device, options),
      far(far_device, options) {
  // Both must be in INIT before either may receive.
  EXPECT_EQ(near.Connect(far), 0);
  EXPECT_EQ(far.Connect(near), 0);
}

}  // namespace roci::testing
