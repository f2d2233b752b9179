// Rate limits of queue pairs, measured.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>

#include "tests/integration/verbs_raw.h"

namespace roci::testing {
namespace {

using Clock = std::chrono::steady_clock;

// A limit is never exceeded. Whether it is reached depends on the processors that the daemon and
// the test get, so that is shown in simulated time (tests/unit/roce/pacer_test.cc).

void ExpectRate(double kbps, double limit) {
  EXPECT_GT(kbps, 0) << "no traffic";
  EXPECT_LT(kbps, limit * 1.1);
}

// Sends `packets` of `bytes` each by RDMA WRITE and returns the rate of frames in kbit/s.
double MeasureWrites(Endpoint& from, Buffer& here, Buffer& there, uint32_t packets,
                     uint32_t bytes) {
  // Ethernet, IPv4, UDP, BTH, RETH, ICRC.
  constexpr uint32_t kHeaders = 14 + 20 + 8 + 12 + 16 + 4;
  const auto start = Clock::now();
  uint32_t posted = 0, done = 0;
  while (done < packets) {
    while (posted < packets && posted - done < 32) {
      EXPECT_EQ(from.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, bytes), IBV_SEND_SIGNALED,
                              there.address(), there.rkey()),
                0);
      ++posted;
    }
    if (from.Wait().status != IBV_WC_SUCCESS) return 0;
    ++done;
  }
  const std::chrono::duration<double> took = Clock::now() - start;
  return packets * (bytes + kHeaders) * 8.0 / 1000 / took.count();
}

// The same for `count` raw frames.
double MeasureFrames(RawEndpoint& from, const Frame& frame, uint32_t count) {
  const auto start = Clock::now();
  uint32_t posted = 0, done = 0;
  while (done < count) {
    while (posted < count && posted - done < RawEndpoint::kReceives) {
      EXPECT_EQ(from.Post(frame, 1), 0);
      ++posted;
    }
    ibv_wc wc;
    const int polled = ibv_poll_cq(from.cq, 1, &wc);
    if (polled < 0 || Clock::now() - start > std::chrono::seconds(120)) return 0;
    done += static_cast<uint32_t>(polled);
  }
  const std::chrono::duration<double> took = Clock::now() - start;
  return count * static_cast<double>(frame.size()) * 8 / 1000 / took.count();
}

int Limit(ibv_qp* qp, uint32_t kbps, uint32_t burst = 0) {
  ibv_qp_rate_limit_attr attr = {};
  attr.rate_limit = kbps;
  attr.max_burst_sz = burst;
  attr.typical_pkt_sz = 1024;
  return ibv_modify_qp_rate_limit(qp, &attr);
}

TEST(PacingTest, ReliableConnectionsKeepToTheirRate) {
  Pair pair;
  Buffer here(pair.near_device, 1024, 1);
  Buffer there(pair.far_device, 1024, 2);
  for (const uint32_t kbps : {20'000u, 200'000u}) {
    // Up to 100 ms of delay is caught up: on a busy machine the daemon waits for a processor.
    ASSERT_EQ(Limit(pair.near.qp, kbps, kbps / 8 * 100), 0);
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    ASSERT_EQ(ibv_query_qp(pair.near.qp, &attr, IBV_QP_RATE_LIMIT, &init), 0);
    EXPECT_EQ(attr.rate_limit, kbps);
    const uint32_t packets = kbps / 20;  // about 430 ms
    ExpectRate(MeasureWrites(pair.near, here, there, packets, 1024), kbps);
  }
  ASSERT_EQ(Limit(pair.near.qp, 0), 0);
  EXPECT_EQ(pair.near.PostSend(IBV_WR_RDMA_WRITE, here.Sge(0, 8), IBV_SEND_SIGNALED,
                               there.address(), there.rkey()),
            0);
  pair.near.ExpectSuccess();
}

TEST(PacingTest, RawPacketsKeepToTheirRate) {
  RawEndpoint near(DeviceZero());
  ibv_qp_attr attr = {};
  attr.rate_limit = 70'000;
  ASSERT_EQ(ibv_modify_qp(near.qp, &attr, IBV_QP_RATE_LIMIT), 0);
  ASSERT_EQ(Limit(near.qp, 50'000, 625'000), 0);
  FrameOptions options;
  options.payload = 958;
  const Frame frame = MakeFrame(options);
  ASSERT_EQ(frame.size(), 1000u);
  ExpectRate(MeasureFrames(near, frame, 2500), 50'000);  // 400 ms
  ASSERT_EQ(Limit(near.qp, 0), 0);
  EXPECT_GT(MeasureFrames(near, frame, 2500), 0);
}

TEST(PacingTest, SmallestAndLargestRate) {
  Pair pair;
  ibv_device_attr_ex device = {};
  ASSERT_EQ(ibv_query_device_ex(pair.near_device.context, nullptr, &device), 0);
  const ibv_packet_pacing_caps& caps = device.packet_pacing_caps;
  EXPECT_TRUE(caps.supported_qpts >> IBV_QPT_RC & 1);
  EXPECT_EQ(Limit(pair.near.qp, caps.qp_rate_limit_min), 0);
  EXPECT_EQ(Limit(pair.near.qp, caps.qp_rate_limit_min - 1), EINVAL);
  EXPECT_EQ(Limit(pair.near.qp, caps.qp_rate_limit_max), 0);
  EXPECT_EQ(Limit(pair.near.qp, caps.qp_rate_limit_max + 1), EINVAL);
  Endpoint idle(pair.near_device);
  EXPECT_EQ(Limit(idle.qp, 1000), EINVAL) << "not in RTS";
}

}  // namespace
}  // namespace roci::testing
