// Unassigned queue pair numbers. Their low bits select a dataplane thread, which may not exist.
#include "tests/integration/verbs_endpoint.h"

namespace roci::testing {
namespace {

TEST(VerbsForgedQpn, IsDroppedWithoutEffect) {
  EndpointOptions options;
  options.timeout = 8;  // about 1 ms
  options.retry_count = 1;
  Pair bystanders;
  Buffer here(bystanders.near_device, 4096, 1);
  Buffer there(bystanders.far_device, 4096, 2);
  // Every value of the bits that name a thread, for up to sixteen threads.
  for (uint32_t bits = 1; bits < 16; ++bits) {
    Endpoint near(DeviceZero(), options);
    Endpoint far(DeviceOne(), options);
    const uint32_t qpn = far.qp->qp_num;
    ASSERT_EQ(near.ToInit(), 0);
    far.qp->qp_num = qpn ^ bits;  // ToRtr uses it as the peer's number
    ASSERT_EQ(near.ToRtr(far), 0);
    far.qp->qp_num = qpn;
    ASSERT_EQ(near.ToRts(), 0);
    ASSERT_EQ(near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 64), IBV_SEND_SIGNALED, there.address(),
                            there.rkey()),
              0);
    const ibv_wc wc = near.Wait();
    // The number may belong to another queue pair of this program, which drops these packets.
    EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR) << bits;
    ASSERT_EQ(bystanders.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 4096), IBV_SEND_SIGNALED,
                                       there.address(), there.rkey()),
              0);
    bystanders.near.ExpectSuccess();
  }
}

}  // namespace
}  // namespace roci::testing
