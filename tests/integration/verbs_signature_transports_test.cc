// Signature regions over the other transports: UC, UD and XRC carry protection information as RC
// does.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "tests/integration/signature_region.h"
#include "tests/integration/verbs_datagram.h"

namespace roci::testing {
namespace {

constexpr uint32_t kBlock = 512;

rocidv_sig_attr Inserting() { return {kNone, T10(), kBlock, kChecks}; }
rocidv_sig_attr Carrying() { return {T10(ROCIDV_SIG_CHECKSUM), T10(), kBlock, kChecks}; }

// ---- Unreliable connections, which register by themselves

class SignaturesOverUc : public ::testing::Test {
 protected:
  static EndpointOptions Options() {
    EndpointOptions options;
    options.type = IBV_QPT_UC;
    return options;
  }
  void Send(const ibv_sge& sge, uint32_t bytes) {
    ASSERT_EQ(pair_.near.PostSend(IBV_WR_SEND, sge), 0);
    EXPECT_EQ(pair_.near.Wait().status, IBV_WC_SUCCESS);
    const ibv_wc wc = pair_.far.Wait();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, bytes);
  }
  // A WRITE over UC has no completion at the peer: a following SEND has one.
  void Write(const ibv_sge& sge, uint32_t rkey) {
    ASSERT_EQ(pair_.far.PostRecv({}), 0);
    ASSERT_EQ(pair_.near.PostSend(IBV_WR_RDMA_WRITE, sge, IBV_SEND_SIGNALED, 0, rkey), 0);
    EXPECT_EQ(pair_.near.Wait().status, IBV_WC_SUCCESS);
    Send({}, 0);
  }

  Pair pair_{Options()};
};

TEST_F(SignaturesOverUc, WritesAndSends) {
  for (const bool is_separate : {false, true}) {
    SignatureRegion near(pair_.near, pair_.near_device, Inserting(), 9, false);
    SignatureRegion far(pair_.far, pair_.far_device, Carrying(), 9, is_separate);
    const Bytes data = PatternBytes(1, 9 * kBlock);
    near.Fill(data);
    Write(near.Sge(), far.mr->rkey);
    far.Expect(data);
    const Bytes other = PatternBytes(2, 9 * kBlock);
    near.Fill(other);
    ASSERT_EQ(pair_.far.PostRecv(far.Sge()), 0);
    Send(near.Sge(), static_cast<uint32_t>(far.mr->length));
    far.Expect(other);
    near.ExpectNoError();
    far.ExpectNoError();
  }
}

TEST_F(SignaturesOverUc, CorruptionIsReportedAtBothEnds) {
  const rocidv_sig_attr attr = {T10(), T10(), kBlock, kChecks};
  SignatureRegion near(pair_.near, pair_.near_device, attr, 6, true);
  SignatureRegion far(pair_.far, pair_.far_device, attr, 6, false);
  near.Fill(PatternBytes(1, 6 * kBlock));
  near.Stored(4, 0) ^= 1;
  Write(near.Sge(), far.mr->rkey);
  near.ExpectError(ROCIDV_SIG_BAD_GUARD, 0x100, 4 * 520);
  far.ExpectError(ROCIDV_SIG_BAD_GUARD, 0x100, 4 * 520);
}

// ---- Datagrams, whose regions another queue pair of the protection domain registers

TEST(SignaturesOverUd, AreSentAndReceived) {
  Pair registers;
  DatagramEndpoint near(DeviceZero()), far(DeviceOne());
  // As many blocks as fit in a datagram of 1024 bytes, and in one of the port's MTU.
  for (const uint32_t blocks : {1U, 7U}) {
    SignatureRegion from(registers.near, DeviceZero(), Inserting(), blocks, false);
    SignatureRegion to(registers.far, DeviceOne(), Carrying(), blocks, true);
    if (from.mr->length > size_t{128} << DeviceZero().port.active_mtu) continue;
    Buffer header(DeviceOne(), 4096, 5);
    const Bytes data = PatternBytes(blocks, size_t{blocks} * kBlock);
    from.Fill(data);
    // The network header has a separate buffer in front.
    ibv_sge places[] = {header.Sge(0, kGrhBytes), to.Sge()};
    ibv_recv_wr receive = {};
    receive.wr_id = 2;
    receive.sg_list = places;
    receive.num_sge = 2;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(far.qp, &receive, &bad), 0);
    ibv_ah* ah = near.CreateAh(DeviceOne().gid, static_cast<uint8_t>(DeviceZero().gid_index));
    ASSERT_NE(ah, nullptr);
    ASSERT_EQ(near.PostSend(ah, far.qp->qp_num, from.Sge()), 0);
    EXPECT_EQ(near.Wait().status, IBV_WC_SUCCESS);
    const ibv_wc wc = far.Wait();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, kGrhBytes + from.mr->length);
    to.Expect(data);
    from.ExpectNoError();
    to.ExpectNoError();
    EXPECT_EQ(ibv_destroy_ah(ah), 0);
  }
}

// ---- Extended reliable connections

EndpointOptions Xrc(ibv_qp_type type) {
  EndpointOptions options;
  options.type = type;
  return options;
}

class SignaturesOverXrc : public ::testing::Test {
 public:
  SignaturesOverXrc() {
    char path[] = "/tmp/roci-signature-XXXXXX";
    file_ = mkstemp(path);
    unlink(path);
    ibv_xrcd_init_attr domain = {};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = file_;
    domain.oflags = O_CREAT;
    xrcd_ = ibv_open_xrcd(device_.context, &domain);
    target_ = std::make_unique<Endpoint>(device_);
    registers_ = std::make_unique<Endpoint>(device_);
    // Regions are registered by a sending queue pair, since receiving ones cannot.
    EXPECT_EQ(registers_->Connect(*registers_), 0);
    ibv_srq_init_attr_ex queue = {};
    queue.attr = {8, 2, 0};
    queue.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
                      IBV_SRQ_INIT_ATTR_PD;
    queue.srq_type = IBV_SRQT_XRC;
    queue.xrcd = xrcd_;
    queue.cq = registers_->cq;
    queue.pd = device_.pd;
    srq_ = ibv_create_srq_ex(device_.context, &queue);
    // The helper stores the target in place of an ordinary queue pair.
    EXPECT_EQ(ibv_destroy_qp(target_->qp), 0);
    ibv_qp_init_attr_ex target = {};
    target.qp_type = IBV_QPT_XRC_RECV;
    target.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    target.xrcd = xrcd_;
    target_->qp = ibv_create_qp_ex(device_.context, &target);
    target_->options.type = IBV_QPT_XRC_RECV;
    EXPECT_EQ(near_.Connect(*target_), 0);
    EXPECT_EQ(target_->Connect(near_), 0);
  }
  ~SignaturesOverXrc() override {
    EXPECT_EQ(ibv_destroy_srq(srq_), 0);
    target_.reset();
    EXPECT_EQ(ibv_close_xrcd(xrcd_), 0);
    close(file_);
  }

 protected:
  ibv_wc_status Do(ibv_wr_opcode opcode, ibv_sge sge, uint32_t rkey = 0) {
    ibv_send_wr wr = {};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.rkey = rkey;
    EXPECT_EQ(ibv_get_srq_num(srq_, &wr.qp_type.xrc.remote_srqn), 0);
    EXPECT_EQ(near_.Post(wr), 0);
    return near_.Wait().status;
  }

  // A separate session, since an XRC domain moves its sessions to one lcore while they are empty.
  OpenDevice device_{"roci1"};
  Endpoint near_{DeviceZero(), Xrc(IBV_QPT_XRC_SEND)};
  std::unique_ptr<Endpoint> target_, registers_;
  int file_ = -1;
  ibv_xrcd* xrcd_ = nullptr;
  ibv_srq* srq_ = nullptr;
};

TEST_F(SignaturesOverXrc, WritesReadsAndSends) {
  SignatureRegion near(near_, DeviceZero(), Inserting(), 9, false);
  SignatureRegion far(*registers_, device_, Carrying(), 9, true);
  const Bytes data = PatternBytes(1, 9 * kBlock);
  near.Fill(data);
  EXPECT_EQ(Do(IBV_WR_RDMA_WRITE, near.Sge(), far.mr->rkey), IBV_WC_SUCCESS);
  far.Expect(data);
  near.Fill(Bytes(9 * kBlock));
  EXPECT_EQ(Do(IBV_WR_RDMA_READ, near.Sge(), far.mr->rkey), IBV_WC_SUCCESS);
  near.Expect(data);
  const Bytes other = PatternBytes(2, 9 * kBlock);
  near.Fill(other);
  ibv_sge place = far.Sge();
  ibv_recv_wr receive = {};
  receive.wr_id = 2;
  receive.sg_list = &place;
  receive.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_srq_recv(srq_, &receive, &bad), 0);
  EXPECT_EQ(Do(IBV_WR_SEND, near.Sge()), IBV_WC_SUCCESS);
  const ibv_wc wc = registers_->Wait();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, far.mr->length);
  far.Expect(other);
  near.ExpectNoError();
  far.ExpectNoError();
}

TEST_F(SignaturesOverXrc, CorruptionIsReportedAtBothEnds) {
  const rocidv_sig_attr attr = {T10(), T10(), kBlock, kChecks};
  SignatureRegion near(near_, DeviceZero(), attr, 6, true);
  SignatureRegion far(*registers_, device_, attr, 6, false);
  near.Fill(PatternBytes(1, 6 * kBlock));
  near.Stored(3, 4) ^= 1;
  EXPECT_EQ(Do(IBV_WR_RDMA_WRITE, near.Sge(), far.mr->rkey), IBV_WC_SUCCESS);
  near.ExpectError(ROCIDV_SIG_BAD_REF_TAG, 0x1000000, 3 * 520);
  far.ExpectError(ROCIDV_SIG_BAD_REF_TAG, 0x1000000, 3 * 520);
}

}  // namespace
}  // namespace roci::testing
