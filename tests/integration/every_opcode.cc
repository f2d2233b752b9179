// Sends every kind of request of RC, UC, XRC and UD queue pairs from roci0 to roci1, in one packet
// and in several; opcodes_test.py checks the packets.
//
// every_opcode GID_INDEX (the same at both devices); exit status 0 on success.
#include <fcntl.h>
#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "verbs_provider/include/infiniband/rocidv.h"

namespace {

constexpr uint32_t kBuffer = 16384, kOnePacket = 21, kSomePackets = 3001, kRemoteAt = 8192;
constexpr uint32_t kQkey = 0x1234, kPsn = 77;
constexpr uint8_t kTimeout = 18;    // 1 s
constexpr uint8_t kEcnCapable = 2;  // ECN bits of the traffic class: marks cause CNPs
constexpr int kAccessFlushGlobal = 1 << 8;
constexpr int kRemote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                        IBV_ACCESS_REMOTE_ATOMIC | kAccessFlushGlobal;
constexpr std::chrono::seconds kPatience{120};

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "every_opcode: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

void Check(bool good, const std::string& what) {
  if (!good) Fail(what);
}

ibv_context* Open(const char* name) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (std::string(ibv_get_device_name(list[i])) == name) context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  Check(context != nullptr, name);
  return context;
}

// A device with the objects that all its queue pairs share. (Freed when the process exits.)
struct Side {
  Side(const char* name, int index) : context(Open(name)), gid_index(index) {
    pd = ibv_alloc_pd(context);
    Check(pd != nullptr, "ibv_alloc_pd");
    region = ibv_reg_mr(pd, buffer.data(), buffer.size(),
                        kRemote | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
    Check(region != nullptr, "ibv_reg_mr");
    cq = ibv_create_cq(context, 256, nullptr, nullptr, 0);
    Check(cq != nullptr, "ibv_create_cq");
    Check(ibv_query_gid(context, 1, index, &gid) == 0, "ibv_query_gid");
  }
  ibv_sge Sge(uint32_t bytes) {
    return {reinterpret_cast<uint64_t>(buffer.data()), bytes, region->lkey};
  }
  uint64_t RemoteAddress() const { return reinterpret_cast<uint64_t>(&buffer[kRemoteAt]); }

  ibv_context* context;
  int gid_index;
  alignas(4096) std::array<uint8_t, kBuffer> buffer = {};
  ibv_pd* pd;
  ibv_mr* region;
  ibv_cq* cq;
  ibv_gid gid = {};
};

ibv_ah_attr AddressOf(const Side& own, const Side& peer) {
  ibv_ah_attr address = {};
  address.is_global = 1;
  address.port_num = 1;
  address.grh.dgid = peer.gid;
  address.grh.sgid_index = static_cast<uint8_t>(own.gid_index);
  address.grh.hop_limit = 64;
  address.grh.traffic_class = kEcnCapable;
  return address;
}

uint64_t OperationsOf(ibv_qp_type type) {
  constexpr uint64_t kSends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr uint64_t kWrites = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  if (type == IBV_QPT_UD) return kSends;
  if (type == IBV_QPT_UC) return kSends | kWrites;
  return kSends | kWrites | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
         IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_WRITE |
         IBV_QP_EX_WITH_SEND_WITH_INV;
}

void Modify(ibv_qp* qp, ibv_qp_attr attr, int mask) {
  Check(ibv_modify_qp(qp, &attr, mask) == 0,
        "ibv_modify_qp to state " + std::to_string(attr.qp_state));
}

// Two connected queue pairs of one type, and the receive queue of the far one.
class Connection {
 public:
  Connection(Side& near, Side& far, ibv_qp_type type, uint8_t timeout)
      : near_(near), far_(far), type_(type), timeout_(timeout) {
    type == IBV_QPT_XRC_SEND ? MakeFarOfXrc() : MakeFar();
    MakeNear();
    for (int i = 0; i < 16; ++i) PostReceive();
    if (type == IBV_QPT_UD) {
      ibv_ah_attr address = AddressOf(near, far);
      handle_ = ibv_create_ah(near.pd, &address);
      Check(handle_ != nullptr, "ibv_create_ah");
    }
  }
  ~Connection() {
    if (window_ != nullptr) ibv_dealloc_mw(window_);
    if (handle_ != nullptr) ibv_destroy_ah(handle_);
    ibv_destroy_qp(near_qp_);
    ibv_destroy_qp(far_qp_);
    if (srq_ != nullptr) ibv_destroy_srq(srq_);
    if (domain_ != nullptr) ibv_close_xrcd(domain_);
    ibv_wc left[16];
    for (ibv_cq* cq : {near_.cq, far_.cq}) {
      while (ibv_poll_cq(cq, 16, left) > 0) {
      }
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const Side& far() const { return far_; }
  // `request(qp)` sets the operation; it carries `bytes` of the buffer, none if 0.
  template <class Request>
  ibv_wc_status Do(const Request& request, uint32_t bytes) {
    ibv_qp_ex* qp = ibv_qp_to_qp_ex(near_qp_);
    ibv_wr_start(qp);
    qp->wr_id = 1;
    qp->wr_flags = IBV_SEND_SIGNALED;
    request(qp);
    if (srq_ != nullptr) ibv_wr_set_xrc_srqn(qp, srq_number_);
    if (handle_ != nullptr) ibv_wr_set_ud_addr(qp, handle_, far_qp_->qp_num, kQkey);
    const ibv_sge sge = near_.Sge(bytes);
    if (bytes != 0) ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
    Check(ibv_wr_complete(qp) == 0, "ibv_wr_complete");
    return Await(near_.cq, IBV_WC_SEND, false);
  }
  // Returns the R_Key of a window bound by the far queue pair.
  uint32_t BindWindow() {
    window_ = ibv_alloc_mw(far_.pd, IBV_MW_TYPE_2);
    Check(window_ != nullptr, "ibv_alloc_mw");
    ibv_send_wr request = {};
    request.opcode = IBV_WR_BIND_MW;
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_mw.mw = window_;
    request.bind_mw.rkey = ibv_inc_rkey(window_->rkey);
    request.bind_mw.bind_info = {far_.region, far_.RemoteAddress(), 64, IBV_ACCESS_REMOTE_READ};
    ibv_send_wr* bad = nullptr;
    Check(ibv_post_send(far_qp_, &request, &bad) == 0, "posting a bind");
    Check(Await(far_.cq, IBV_WC_BIND_MW, true) == IBV_WC_SUCCESS, "binding");
    return request.bind_mw.rkey;
  }

 private:
  // Returns the next completion, optionally the next of one opcode.
  static ibv_wc_status Await(ibv_cq* cq, ibv_wc_opcode kind, bool only_that) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < end) {
      ibv_wc entry = {};
      if (ibv_poll_cq(cq, 1, &entry) == 1 && (!only_that || entry.opcode == kind)) {
        return entry.status;
      }
    }
    Fail("no completion");
  }
  void PostReceive() {
    ibv_sge sge = far_.Sge(kRemoteAt);
    ibv_recv_wr request = {};
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    Check((srq_ != nullptr ? ibv_post_srq_recv(srq_, &request, &bad)
                           : ibv_post_recv(far_qp_, &request, &bad)) == 0,
          "posting a receive");
  }
  void MakeNear() {
    ibv_qp_init_attr_ex attributes = {};
    attributes.qp_type = type_;
    attributes.send_cq = attributes.recv_cq = near_.cq;
    attributes.cap = {16, type_ == IBV_QPT_XRC_SEND ? 0u : 1u, 1, 1, 0};
    attributes.pd = near_.pd;
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attributes.send_ops_flags = OperationsOf(type_);
    near_qp_ = ibv_create_qp_ex(near_.context, &attributes);
    Check(near_qp_ != nullptr, "ibv_create_qp_ex");
    Connect(near_qp_, near_, far_, far_qp_->qp_num);
    Connect(far_qp_, far_, near_, near_qp_->qp_num);
  }
  void MakeFar() {
    ibv_qp_init_attr attributes = {};
    attributes.qp_type = type_;
    attributes.send_cq = attributes.recv_cq = far_.cq;
    attributes.cap = {1, 16, 1, 1, 0};
    far_qp_ = ibv_create_qp(far_.pd, &attributes);
    Check(far_qp_ != nullptr, "ibv_create_qp");
  }
  void MakeFarOfXrc() {
    ibv_xrcd_init_attr domain = {};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = -1;
    domain.oflags = O_CREAT;
    domain_ = ibv_open_xrcd(far_.context, &domain);
    Check(domain_ != nullptr, "ibv_open_xrcd");
    ibv_srq_init_attr_ex queue = {};
    queue.attr.max_wr = 16;
    queue.attr.max_sge = 1;
    queue.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                      IBV_SRQ_INIT_ATTR_PD;
    queue.srq_type = IBV_SRQT_XRC;
    queue.xrcd = domain_;
    queue.cq = far_.cq;
    queue.pd = far_.pd;
    srq_ = ibv_create_srq_ex(far_.context, &queue);
    Check(srq_ != nullptr && ibv_get_srq_num(srq_, &srq_number_) == 0, "ibv_create_srq_ex");
    ibv_qp_init_attr_ex attributes = {};
    attributes.qp_type = IBV_QPT_XRC_RECV;
    attributes.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attributes.xrcd = domain_;
    far_qp_ = ibv_create_qp_ex(far_.context, &attributes);
    Check(far_qp_ != nullptr, "ibv_create_qp_ex");
  }
  void Connect(ibv_qp* qp, const Side& own, const Side& peer, uint32_t remote_qpn) {
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = kQkey;
    attr.qp_access_flags = kRemote;
    const bool is_datagram = type_ == IBV_QPT_UD;
    Modify(qp, attr,
           IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
               (is_datagram ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS));
    const bool is_reliable = type_ == IBV_QPT_RC || type_ == IBV_QPT_XRC_SEND;
    const bool sends = qp == near_qp_ || type_ != IBV_QPT_XRC_SEND;
    const bool receives = qp == far_qp_ || type_ != IBV_QPT_XRC_SEND;
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = remote_qpn;
    attr.rq_psn = kPsn;
    attr.ah_attr = AddressOf(own, peer);
    attr.max_dest_rd_atomic = attr.max_rd_atomic = 1;
    attr.min_rnr_timer = 12;
    constexpr int kPath = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    constexpr int kResponder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    Modify(qp, attr,
           IBV_QP_STATE | (is_datagram ? 0 : kPath) | (is_reliable && receives ? kResponder : 0));
    if (!sends) return;
    attr.qp_state = IBV_QPS_RTS;
    attr.sq_psn = kPsn;
    attr.timeout = timeout_;
    attr.retry_cnt = attr.rnr_retry = 7;
    constexpr int kRequester =
        IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    Modify(qp, attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (is_reliable ? kRequester : 0));
  }

  Side& near_;
  Side& far_;
  ibv_qp_type type_;
  uint8_t timeout_;
  ibv_mw* window_ = nullptr;
  ibv_qp* near_qp_ = nullptr;
  ibv_qp* far_qp_ = nullptr;
  ibv_ah* handle_ = nullptr;
  ibv_srq* srq_ = nullptr;
  uint32_t srq_number_ = 0;
  ibv_xrcd* domain_ = nullptr;
};

void Succeed(ibv_wc_status status, const char* what) {
  Check(status == IBV_WC_SUCCESS, std::string(what) + ": " + ibv_wc_status_str(status));
}

void Send(Connection& connection, uint32_t bytes) {
  Succeed(connection.Do([](ibv_qp_ex* qp) { ibv_wr_send(qp); }, bytes), "SEND");
  Succeed(connection.Do([](ibv_qp_ex* qp) { ibv_wr_send_imm(qp, 5); }, bytes),
          "SEND with immediate data");
}

void Write(Connection& connection, uint32_t bytes) {
  const uint32_t rkey = connection.far().region->rkey;
  const uint64_t to = connection.far().RemoteAddress();
  Succeed(connection.Do([=](ibv_qp_ex* qp) { ibv_wr_rdma_write(qp, rkey, to); }, bytes), "WRITE");
  Succeed(connection.Do([=](ibv_qp_ex* qp) { ibv_wr_rdma_write_imm(qp, rkey, to, 6); }, bytes),
          "WRITE with immediate data");
}

void ReadAndChange(Connection& connection) {
  const uint32_t rkey = connection.far().region->rkey;
  const uint64_t at = connection.far().RemoteAddress();
  for (const uint32_t bytes : {kOnePacket, kSomePackets}) {
    Succeed(connection.Do([=](ibv_qp_ex* qp) { ibv_wr_rdma_read(qp, rkey, at); }, bytes), "READ");
  }
  Succeed(connection.Do([=](ibv_qp_ex* qp) { ibv_wr_atomic_cmp_swp(qp, rkey, at, 0, 1); }, 8),
          "compare and swap");
  Succeed(connection.Do([=](ibv_qp_ex* qp) { ibv_wr_atomic_fetch_add(qp, rkey, at, 1); }, 8),
          "fetch and add");
  const uint64_t value = 7;
  Succeed(connection.Do([&](ibv_qp_ex* qp) { ibv_wr_atomic_write(qp, rkey, at, &value); }, 0),
          "ATOMIC WRITE");
  Succeed(connection.Do(
              [=](ibv_qp_ex* qp) {
                rocidv_wr_flush(qp, rkey, at, 64, ROCIDV_FLUSH_GLOBAL, ROCIDV_FLUSH_RANGE);
              },
              0),
          "FLUSH");
}

// An XRC target has no bound windows: the key is invalid, and its queue pair stops responding (IBTA
// vol 1, 9.9.3, class J).
void SendAndInvalidate(Side& near, Side& far, ibv_qp_type type, uint32_t bytes) {
  constexpr uint8_t kSoon = 10;  // 4 ms
  const bool is_xrc = type == IBV_QPT_XRC_SEND;
  Connection connection(near, far, type, is_xrc ? kSoon : kTimeout);
  const uint32_t rkey = is_xrc ? 0xABCDE : connection.BindWindow();
  const ibv_wc_status status =
      connection.Do([=](ibv_qp_ex* qp) { ibv_wr_send_inv(qp, rkey); }, bytes);
  Check(status == (is_xrc ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS),
        std::string("SEND with invalidate: ") + ibv_wc_status_str(status));
}

void DoAll(Side& near, Side& far, ibv_qp_type type) {
  const bool is_reliable = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
  {
    Connection connection(near, far, type, kTimeout);
    for (const uint32_t bytes : {kOnePacket, kSomePackets}) {
      if (type == IBV_QPT_UD && bytes > kOnePacket) break;
      Send(connection, bytes);
      if (type != IBV_QPT_UD) Write(connection, bytes);
    }
    if (is_reliable) ReadAndChange(connection);
  }
  for (const uint32_t bytes : {kOnePacket, kSomePackets}) {
    if (is_reliable) SendAndInvalidate(near, far, type, bytes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: every_opcode GID_INDEX\n");
    return 2;
  }
  const int gid_index = std::atoi(argv[1]);
  const auto near = std::make_unique<Side>("roci0", gid_index);
  const auto far = std::make_unique<Side>("roci1", gid_index);
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_XRC_SEND, IBV_QPT_UD}) {
    DoAll(*near, *far, type);
  }
  return 0;
}
