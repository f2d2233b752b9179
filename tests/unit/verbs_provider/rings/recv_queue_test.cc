// Receive requests in the receive queue ring.
#include "verbs_provider/rings/recv_queue.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/unit/single_step.h"
#include "tests/unit/verbs_provider/rings/rings_fixture.h"

namespace roci::provider {
namespace {

TEST(RecvQueue, WritesEntriesAndRings) {
  FakeRecvQueue fake(4, 64);
  fake.queue.shared->armed = 1;
  ibv_sge sges[] = {{0x1000, 10, 1}, {0x2000, 20, 2}, {0x3000, 30, 3}};
  ibv_recv_wr second = {.wr_id = 22, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
  ibv_recv_wr first = {.wr_id = 11, .next = &second, .sg_list = sges, .num_sge = 3};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(PostRecvList(fake.queue, &first, &bad), 0);
  EXPECT_EQ(fake.queue.shared->producer, 2u);
  EXPECT_EQ(fake.Entry(0).wr_id, 11u);
  EXPECT_EQ(fake.Entry(0).num_sge, 3u);
  const auto* out = reinterpret_cast<const roci_abi_sge*>(&fake.Entry(0) + 1);
  EXPECT_EQ(out[2].va, 0x3000u);
  EXPECT_EQ(out[2].length, 30u);
  EXPECT_EQ(out[2].lkey, 3u);
  EXPECT_EQ(fake.Entry(1).wr_id, 22u);
  EXPECT_EQ(fake.Entry(1).num_sge, 0u);
  EXPECT_TRUE(fake.doorbells.IsRung(FakeRecvQueue::kHandle));
}

TEST(RecvQueue, RefusesTooManySgesAndFillsUp) {
  FakeRecvQueue fake(4, 64);
  fake.queue.limit = 3;
  ibv_sge sges[4] = {};
  ibv_recv_wr wr = {.wr_id = 1, .next = nullptr, .sg_list = sges, .num_sge = 4};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(PostRecvList(fake.queue, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  wr.num_sge = -1;
  EXPECT_EQ(PostRecvList(fake.queue, &wr, &bad), EINVAL);
  wr.num_sge = 1;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(PostRecvList(fake.queue, &wr, &bad), 0);
  EXPECT_EQ(PostRecvList(fake.queue, &wr, &bad), ENOMEM);
  fake.queue.tail = 1;
  EXPECT_EQ(PostRecvList(fake.queue, &wr, &bad), 0);
}

// At any time, all entries before the producer index are complete.
TEST(RecvQueue, PublishesEntriesThatAreWritten) {
  FakeRecvQueue fake(4, 32);
  ibv_sge sge = {0x1000, 10, 7};
  ibv_recv_wr second = {.wr_id = 2, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr first = {.wr_id = 1, .next = &second, .sg_list = &sge, .num_sge = 1};
  const auto* shared = reinterpret_cast<const std::byte*>(fake.queue.shared);
  const size_t slots = static_cast<size_t>(fake.queue.slots - shared);
  uint32_t published = 0;
  const auto check = [&](std::span<const std::byte> ring) {
    roci_abi_queue header;
    memcpy(&header, ring.data(), sizeof(header));
    published = header.producer;
    for (uint32_t i = 0; i < published; ++i) {
      roci_abi_recv_wqe entry;
      roci_abi_sge element;
      memcpy(&entry, ring.data() + slots + size_t{i} * 32, sizeof(entry));
      memcpy(&element, ring.data() + slots + size_t{i} * 32 + sizeof(entry), sizeof(element));
      EXPECT_EQ(entry.wr_id, i + 1);
      EXPECT_EQ(element.lkey, 7u);
    }
    return !::testing::Test::HasFailure();
  };
  ibv_recv_wr* bad = nullptr;
  const uint32_t looks = ForEachStep(
      {shared, slots + 64}, [&] { PostRecvList(fake.queue, &first, &bad); }, check);
  if (looks == 0) GTEST_SKIP() << "processes may not be traced here";
  EXPECT_EQ(published, 2u);
}

TEST(RecvQueue, WithLimitZeroRefusesEveryRequest) {
  FakeRecvQueue fake(1, 32);
  fake.queue.limit = 0;
  ibv_recv_wr wr = {};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(PostRecvList(fake.queue, &wr, &bad), ENOMEM);
}

}  // namespace
}  // namespace roci::provider
