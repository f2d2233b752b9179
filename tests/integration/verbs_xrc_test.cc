// Extended reliable connections as programs use them: domains by file, shared receive queues of
// several sessions for one receiving queue pair, its lifetime, and errors.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "tests/integration/late_memory.h"
#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

class TempFile {
 public:
  TempFile() : fd(mkstemp(path_)) {}
  ~TempFile() {
    close(fd);
    unlink(path_);
  }

 private:
  char path_[64] = "/tmp/roci-xrc-XXXXXX";

 public:
  const int fd;
};

ibv_xrcd* OpenXrcd(ibv_context* context, int fd, int flags) {
  ibv_xrcd_init_attr attr = {};
  attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attr.fd = fd;
  attr.oflags = flags;
  return ibv_open_xrcd(context, &attr);
}

ibv_wc Poll(ibv_cq* cq) {
  ibv_wc wc = {};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < end) {
    if (ibv_poll_cq(cq, 1, &wc) == 1) return wc;
    std::this_thread::yield();
  }
  wc.status = IBV_WC_GENERAL_ERR;  // no completion
  return wc;
}

int Bring(ibv_qp* qp, const OpenDevice& peer, uint32_t remote_qpn, OpenDevice& self) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  int error = ibv_modify_qp(qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) return error;
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = remote_qpn;
  attr.rq_psn = 7;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = peer.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(self.gid_index);
  attr.ah_attr.grh.hop_limit = 64;
  error = ibv_modify_qp(qp, &attr,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0) return error;
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = 7;
  attr.timeout = 15;  // 0.13 s
  attr.retry_cnt = 3;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  return ibv_modify_qp(qp, &attr,
                       IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                           IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
}

// One session on the receiving device, with a shared receive queue in the domain of a file.
class Receiver {
 public:
  explicit Receiver(int fd, int cq_entries = 64) : device("roci1"), buffer(device, 16384, 3) {
    xrcd = OpenXrcd(device.context, fd, O_CREAT);
    cq = ibv_create_cq(device.context, cq_entries, nullptr, nullptr, 0);
    ibv_srq_init_attr_ex attr = {};
    attr.attr.max_wr = 16;
    attr.attr.max_sge = 1;
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                     IBV_SRQ_INIT_ATTR_PD;
    attr.srq_type = IBV_SRQT_XRC;
    attr.xrcd = xrcd;
    attr.cq = cq;
    attr.pd = device.pd;
    if (xrcd != nullptr) srq = ibv_create_srq_ex(device.context, &attr);
    if (srq != nullptr) {
      EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
    }
  }
  ~Receiver() {
    if (qp != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(qp), 0);
    }
    DestroySrq();
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    if (xrcd != nullptr) {
      EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
    }
  }
  void DestroySrq() {
    if (srq != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(srq), 0);
    }
    srq = nullptr;
  }
  ibv_qp* CreateTarget() {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd;
    return qp = ibv_create_qp_ex(device.context, &attr);
  }
  ibv_qp* OpenTarget(uint32_t qpn) {
    ibv_qp_open_attr attr = {};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = qpn;
    attr.xrcd = xrcd;
    attr.qp_type = IBV_QPT_XRC_RECV;
    return qp = ibv_open_qp(device.context, &attr);
  }
  int Post(uint64_t wr_id) {
    ibv_sge sge = buffer.Sge(0, 8192);
    ibv_recv_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }

  OpenDevice device;
  Buffer buffer;
  ibv_xrcd* xrcd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
  uint32_t number = 0;
};

class Sender {
 public:
  Sender() : device("roci0"), buffer(device, 16384, 9) {
    cq = ibv_create_cq(device.context, 64, nullptr, nullptr, 0);
    ibv_qp_init_attr attr = {};
    attr.qp_type = IBV_QPT_XRC_SEND;
    attr.send_cq = cq;
    attr.cap.max_send_wr = 16;
    attr.cap.max_send_sge = 1;
    qp = ibv_create_qp(device.pd, &attr);
  }
  ~Sender() {
    if (qp != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(qp), 0);
    }
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
  }
  int Post(ibv_wr_opcode opcode, uint32_t srqn, uint32_t length, uint64_t remote = 0,
           uint32_t rkey = 0) {
    ibv_sge sge = buffer.Sge(0, length);
    ibv_send_wr wr = {};
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = remote;
    wr.wr.rdma.rkey = rkey;
    wr.qp_type.xrc.remote_srqn = srqn;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(qp, &wr, &bad);
  }
  ibv_wc_status Run(ibv_wr_opcode opcode, uint32_t srqn, uint32_t length, uint64_t remote = 0,
                    uint32_t rkey = 0) {
    EXPECT_EQ(Post(opcode, srqn, length, remote, rkey), 0);
    return Poll(cq).status;
  }
  OpenDevice device;
  Buffer buffer;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
};

class XrcTest : public ::testing::Test {
 protected:
  void Connect(Receiver& owner) {
    ASSERT_NE(sender_.qp, nullptr);
    ASSERT_NE(owner.CreateTarget(), nullptr);
    ASSERT_EQ(Bring(owner.qp, sender_.device, sender_.qp->qp_num, owner.device), 0);
    ASSERT_EQ(Bring(sender_.qp, owner.device, owner.qp->qp_num, sender_.device), 0);
  }
  // One message to target `qpn`, received by the queue of `to`.
  void Deliver(Receiver& to, uint32_t qpn, uint64_t wr_id, uint32_t length = 5000) {
    sender_.buffer.Fill(static_cast<uint32_t>(wr_id));
    ASSERT_EQ(to.Post(wr_id), 0);
    ASSERT_EQ(sender_.Run(IBV_WR_SEND, to.number, length), IBV_WC_SUCCESS);
    const ibv_wc wc = Poll(to.cq);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.qp_num, qpn);
    EXPECT_EQ(wc.byte_len, length);
    EXPECT_EQ(memcmp(to.buffer.data(), sender_.buffer.data(), length), 0);
  }
  TempFile file_;
  Sender sender_;
};

TEST_F(XrcTest, FileNamesTheDomain) {
  OpenDevice a("roci1"), b("roci1");
  const auto fails = [](ibv_xrcd* xrcd) { return xrcd == nullptr ? errno : 0; };
  EXPECT_EQ(fails(OpenXrcd(a.context, file_.fd, 0)), EAGAIN);
  EXPECT_EQ(fails(OpenXrcd(a.context, 12345, O_CREAT)), EBADF);
  ibv_xrcd* first = OpenXrcd(a.context, file_.fd, O_CREAT | O_EXCL);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(fails(OpenXrcd(b.context, file_.fd, O_CREAT | O_EXCL)), EINVAL);
  ibv_xrcd* second = OpenXrcd(b.context, file_.fd, 0);
  ASSERT_NE(second, nullptr);
  ibv_xrcd* own = OpenXrcd(b.context, -1, O_CREAT);
  ASSERT_NE(own, nullptr);
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  ibv_xrcd* third = OpenXrcd(a.context, file_.fd, 0);
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(ibv_close_xrcd(third), 0);
  EXPECT_EQ(ibv_close_xrcd(second), 0);
  EXPECT_EQ(ibv_close_xrcd(own), 0);
  EXPECT_EQ(fails(OpenXrcd(a.context, file_.fd, 0)), EAGAIN);
}

TEST_F(XrcTest, SessionsShareAReceivingQueuePair) {
  Receiver a(file_.fd), b(file_.fd);
  ASSERT_NE(a.srq, nullptr);
  ASSERT_NE(b.srq, nullptr);
  EXPECT_NE(a.number, b.number);
  Connect(a);
  for (uint64_t i = 0; i < 40; ++i) Deliver(i % 3 == 0 ? b : a, a.qp->qp_num, i);
  // Remote keys belong to the session and domain of the shared receive queue.
  sender_.buffer.Fill(77);
  EXPECT_EQ(sender_.Run(IBV_WR_RDMA_WRITE, b.number, 9000, b.buffer.address(), b.buffer.rkey()),
            IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(b.buffer.data(), sender_.buffer.data(), 9000), 0);
  a.buffer.Fill(78);
  EXPECT_EQ(sender_.Run(IBV_WR_RDMA_READ, a.number, 9000, a.buffer.address(), a.buffer.rkey()),
            IBV_WC_SUCCESS);
  EXPECT_EQ(memcmp(a.buffer.data(), sender_.buffer.data(), 9000), 0);
}

TEST_F(XrcTest, ReceivingQueuePairLivesUntilItsLastHandleIsClosed) {
  auto a = std::make_unique<Receiver>(file_.fd);
  Receiver b(file_.fd);
  Connect(*a);
  const uint32_t qpn = a->qp->qp_num;
  EXPECT_EQ(b.OpenTarget(qpn ^ 1), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_NE(b.OpenTarget(qpn), nullptr);
  EXPECT_EQ(b.qp->state, IBV_QPS_RTS);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(b.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.dest_qp_num, sender_.qp->qp_num);
  EXPECT_EQ(memcmp(&attr.ah_attr.grh.dgid, &sender_.device.gid, 16), 0);
  Deliver(*a, qpn, 1);
  a.reset();
  Deliver(b, qpn, 2);
  ASSERT_EQ(ibv_destroy_qp(b.qp), 0);
  EXPECT_EQ(b.OpenTarget(qpn), nullptr);
  EXPECT_EQ(b.Post(3), 0);
  EXPECT_EQ(sender_.Run(IBV_WR_SEND, b.number, 8), IBV_WC_RETRY_EXC_ERR);
}

// Its remote memory belongs to the program of the shared receive queue.
TEST_F(XrcTest, NoAccessAfterTheReceivingQueuePairIsDestroyed) {
  LateMemory memory;
  if (!memory.works()) GTEST_SKIP() << "no userfaultfd for kernel faults";
  Receiver a(file_.fd);
  ASSERT_NE(a.srq, nullptr);
  std::mt19937 random(1);
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    Sender sender;
    ASSERT_NE(sender.qp, nullptr);
    ASSERT_NE(a.CreateTarget(), nullptr);
    ASSERT_EQ(Bring(a.qp, sender.device, sender.qp->qp_num, a.device), 0);
    ASSERT_EQ(Bring(sender.qp, a.device, a.qp->qp_num, sender.device), 0);
    ibv_mr* mr = ibv_reg_mr(a.device.pd, memory.data(), memory.size(),
                            IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(sender.Post(IBV_WR_RDMA_WRITE, a.number, 64, memory.late_address(), mr->rkey), 0);
    SpinFor(std::chrono::microseconds(random() % 400));
    ASSERT_EQ(ibv_destroy_qp(std::exchange(a.qp, nullptr)), 0);
    memory.ExpectNoAccess();
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    memory.Empty();
  }
}

TEST_F(XrcTest, AnOverflowedCompletionQueueStopsTheReceivingQueuePair) {
  Receiver a(file_.fd, 8);  // fewer than the queue's slots, which polling frees
  Connect(a);
  const int entries = a.cq->cqe;
  int delivered = 0;
  ibv_wc_status status = IBV_WC_SUCCESS;
  while (status == IBV_WC_SUCCESS && delivered < entries + 3) {
    ASSERT_EQ(a.Post(1), 0);
    status = sender_.Run(IBV_WR_SEND, a.number, 8);
    ++delivered;
  }
  EXPECT_EQ(status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(delivered, entries + 2) << "the first lost message was acknowledged";
  for (const ibv_event_type type : {IBV_EVENT_CQ_ERR, IBV_EVENT_QP_FATAL}) {
    ibv_async_event event = {};
    ASSERT_EQ(ibv_get_async_event(a.device.context, &event), 0);
    EXPECT_EQ(event.event_type, type);
    ibv_ack_async_event(&event);
  }
}

TEST_F(XrcTest, NumberOfAnotherDomainIsAnInvalidRequest) {
  TempFile other;
  Receiver a(file_.fd), foreign(other.fd);
  Connect(a);
  ASSERT_EQ(foreign.Post(1), 0);
  EXPECT_EQ(sender_.Run(IBV_WR_SEND, foreign.number, 8), IBV_WC_REM_INV_REQ_ERR);
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(foreign.cq, 1, &wc), 0);
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init = {};
  ASSERT_EQ(ibv_query_qp(a.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
}

TEST_F(XrcTest, DestroyedSharedReceiveQueueIsAnInvalidRequest) {
  Receiver a(file_.fd), b(file_.fd);
  Connect(a);
  Deliver(b, a.qp->qp_num, 1);
  b.DestroySrq();
  EXPECT_EQ(sender_.Run(IBV_WR_SEND, b.number, 8), IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(XrcTest, EmptySharedReceiveQueueIsNotReady) {
  Receiver a(file_.fd);
  Connect(a);
  ASSERT_EQ(sender_.Post(IBV_WR_SEND, a.number, 8), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(sender_.cq, 1, &wc), 0);
  ASSERT_EQ(a.Post(4), 0);
  EXPECT_EQ(Poll(sender_.cq).status, IBV_WC_SUCCESS);
  EXPECT_EQ(Poll(a.cq).wr_id, 4u);
}

TEST_F(XrcTest, ObjectsInUseAreBusy) {
  Receiver a(file_.fd);
  Connect(a);
  EXPECT_EQ(ibv_close_xrcd(a.xrcd), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(a.cq), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(a.device.pd), EBUSY);
  a.DestroySrq();
  EXPECT_EQ(ibv_close_xrcd(a.xrcd), EBUSY);
  ibv_recv_wr recv = {};
  ibv_recv_wr* bad_recv = nullptr;
  EXPECT_EQ(ibv_post_recv(a.qp, &recv, &bad_recv), EINVAL);
  ibv_send_wr send = {};
  ibv_send_wr* bad_send = nullptr;
  EXPECT_EQ(ibv_post_send(a.qp, &send, &bad_send), EINVAL);
}

}  // namespace
}  // namespace roci::testing
