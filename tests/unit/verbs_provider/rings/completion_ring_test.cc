// Reading completions from the ring.
#include "verbs_provider/rings/completion_ring.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/unit/verbs_provider/rings/rings_fixture.h"

namespace roci::provider {
namespace {

roci_abi_cqe Entry(uint64_t wr_id, uint32_t qpn = 7) {
  roci_abi_cqe entry = {};
  entry.wr_id = wr_id;
  entry.qpn = qpn;
  return entry;
}

TEST(CompletionRing, IsEmptyAtFirst) {
  FakeCompletionRing fake(4);
  EXPECT_EQ(fake.ring.At(0), nullptr);
}

TEST(CompletionRing, CarriesEveryFieldToTheApp) {
  roci_abi_cqe entry = Entry(0x1122334455667788);
  entry.status = IBV_WC_RNR_RETRY_EXC_ERR;
  entry.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
  entry.flags = ROCI_ABI_CQE_GRH | ROCI_ABI_CQE_WITH_IMM | ROCI_ABI_CQE_SEND;
  entry.vendor_error = 5;
  entry.byte_length = 6;
  entry.immediate = 0x04030201;
  entry.source_qpn = 8;
  entry.pkey_index = 9;
  entry.sl = 3;
  ibv_wc wc;
  memset(&wc, 0xEE, sizeof(wc));
  FillCompletion(entry, &wc);
  EXPECT_EQ(wc.wr_id, 0x1122334455667788u);
  EXPECT_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_GRH | IBV_WC_WITH_IMM});
  EXPECT_EQ(wc.vendor_err, 5u);
  EXPECT_EQ(wc.byte_len, 6u);
  EXPECT_EQ(wc.imm_data, 0x04030201u);
  EXPECT_EQ(wc.qp_num, 7u);
  EXPECT_EQ(wc.src_qp, 8u);
  EXPECT_EQ(wc.pkey_index, 9);
  EXPECT_EQ(wc.slid, 0);
  EXPECT_EQ(wc.sl, 3);
  EXPECT_EQ(wc.dlid_path_bits, 0);
}

TEST(CompletionRing, TellsNewEntriesFromOldOnesAcrossRoundsAndIndexWrap) {
  FakeCompletionRing fake(8);
  for (const uint32_t start : {0u, 8u, 13u, 0xFFFFFFFAu}) {
    if (start != 0) fake.StartAt(start);
    uint32_t index = start;
    for (uint32_t i = 0; i < 40; ++i) {
      ASSERT_EQ(fake.ring.At(index), nullptr) << start << '+' << i;
      fake.Write(Entry(i));
      ASSERT_NE(fake.ring.At(index), nullptr) << start << '+' << i;
      EXPECT_EQ(fake.ring.At(index)->wr_id, i);
      fake.ring.PublishConsumer(++index);
    }
    EXPECT_EQ(fake.ring.shared->consumer, start + 40);
  }
}

TEST(CompletionRing, SkipsTheEntriesOfOneQpOnly) {
  FakeCompletionRing fake(4);
  fake.Write(Entry(0, 1));
  fake.ring.PublishConsumer(1);
  fake.Write(Entry(1, 1));
  fake.Write(Entry(2, 2));
  fake.Write(Entry(3, 1));
  fake.Write(Entry(4, 2));  // full
  fake.ring.SkipEntries([](const roci_abi_cqe& entry) { return entry.qpn == 1; },
                        [](const roci_abi_cqe&) {});
  EXPECT_EQ(fake.ring.At(1)->status, kSkippedStatus);
  EXPECT_EQ(fake.ring.At(2)->status, IBV_WC_SUCCESS);
  EXPECT_EQ(fake.ring.At(3)->status, kSkippedStatus);
  EXPECT_EQ(fake.ring.At(4)->status, IBV_WC_SUCCESS);
}

TEST(CompletionRing, KeepsTheStrongerRequestForNotification) {
  FakeCompletionRing fake(4);
  uint32_t& arm = fake.ring.shared->arm;
  fake.ring.RequestNotification(true);
  EXPECT_EQ(arm, ROCI_ABI_CQ_ARM_SOLICITED);
  fake.ring.RequestNotification(false);
  EXPECT_EQ(arm, ROCI_ABI_CQ_ARM_ANY);
  fake.ring.RequestNotification(true);
  EXPECT_EQ(arm, ROCI_ABI_CQ_ARM_ANY);
}

// The writer fills the ring as far as it may; the reader sees every entry once and complete.
TEST(CompletionRing, PassesEntriesBetweenThreads) {
  constexpr uint32_t kCapacity = 16;
  constexpr uint32_t kCount = 100000;
  FakeCompletionRing fake(kCapacity);
  std::thread daemon([&fake] {
    for (uint32_t i = 0; i < kCount; ++i) {
      while (i - std::atomic_ref<uint32_t>(fake.ring.shared->consumer)
                     .load(std::memory_order_acquire) >=
             kCapacity) {
        sched_yield();
      }
      roci_abi_cqe entry = Entry(i, ~i);
      entry.slot = i * 3;
      fake.Write(entry);
    }
  });
  for (uint32_t i = 0; i < kCount;) {
    const roci_abi_cqe* entry = fake.ring.At(i);
    if (entry == nullptr) {
      sched_yield();
      continue;
    }
    ASSERT_EQ(entry->wr_id, i);
    ASSERT_EQ(entry->qpn, ~i);
    ASSERT_EQ(entry->slot, i * 3);
    fake.ring.PublishConsumer(++i);
  }
  daemon.join();
}

}  // namespace
}  // namespace roci::provider
