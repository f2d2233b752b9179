// Functions that the lcore runs, or another thread in place of a sleeping lcore: they run one at a
// time on any thread, and each sees the effects of the earlier ones.
#include "dataplane/shard/lcore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/worker.h"
#include "tests/unit/dataplane/environment.h"
#include "tests/unit/dataplane/ring_app.h"
#include "tests/unit/single_step.h"

namespace roci::testing {
namespace {

constexpr uint32_t kCalls = 20'000;

TEST(LcoreTest, RunsEveryFunctionOneAtATime) {
  dataplane::Lcore& lcore = TestLcore(0);
  uint32_t count = 0;  // plain: two at a time would lose some
  bool inside = false;
  auto add = [&](const dataplane::OnShard&) {
    ASSERT_FALSE(inside);
    inside = true;
    ++count;
    inside = false;
  };
  const auto before = lcore.Snapshot().calls;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      for (uint32_t n = 0; n < kCalls; ++n) lcore.Call(add);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lcore.Call([&](const dataplane::OnShard&) { return count; }), 3 * kCalls);
  EXPECT_GE(lcore.Snapshot().calls - before, 3 * kCalls);
}

// Functions also run while the lcore sleeps; the lcore then does the work that they leave.
TEST(LcoreTest, RunsFunctionsWhileItSleepsAndWakes) {
  dataplane::Lcore& lcore = TestLcore(0);
  for (int i = 0; i < 20; ++i) {
    const auto sleeps = lcore.Snapshot().sleeps;
    for (int tries = 0; tries < 2000 && lcore.Snapshot().sleeps == sleeps; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      lcore.FinishRound();  // and it falls asleep again
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GT(lcore.Snapshot().sleeps, sleeps);
    const auto loops = lcore.Snapshot().loops;
    EXPECT_EQ(lcore.Call([](const dataplane::OnShard&) { return 7; }), 7);
    lcore.FinishRound();
    EXPECT_GT(lcore.Snapshot().loops, loops);
  }
}

TEST(LcoreTest, CountsLongCalls) {
  dataplane::Lcore& lcore = TestLcore(0);
  const uint64_t before = lcore.Snapshot().long_calls;
  const auto run_long = [](const dataplane::OnShard&) {
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(3);
         std::chrono::steady_clock::now() < end;) {
    }
    return true;
  };
  lcore.Call(run_long);
  lcore.CallInRound(run_long);
  lcore.FinishRound();
  EXPECT_GE(lcore.Snapshot().long_calls, before + 2);
}

// A long command of one program: each part leaves another program's queue pair a request, and finds
// it complete when the next part begins.
TEST(LcoreTest, ServesQueuePairsBetweenThePartsOfACommand) {
  constexpr int kParts = 20;
  dataplane::Wire wire(TestDataplane());
  Node node(TestDataplane(), &wire, {});
  dataplane::Lcore& lcore = node.lcore();
  AppCq cq(node.client(), 64);
  dataplane::QueuePairConfig config;
  config.type = roce::QpType::kUd;
  config.pd = Node::kPd;
  config.send_cq = config.recv_cq = cq.cq();
  config.max_send_wr = 32;
  config.max_recv_wr = 1;
  config.max_send_sge = config.max_recv_sge = 1;
  AppQp qp(node.client(), config);
  ASSERT_EQ(ConnectUd(node, qp), roce::ModifyResult::kOk);
  SendRequest request;
  request.head.opcode = 200;  // refused, so it completes without a frame
  roci_abi_cqe cqe;
  int parts = 0;
  uint64_t loops = 0;
  lcore.CallInParts([&](const dataplane::OnShard& shard) {
    const uint64_t now = lcore.worker(shard).stats().loops.value();
    // The first part may run in the place of the idle lcore, shortly before the second.
    if (parts > 1) {
      EXPECT_GT(now, loops);
      EXPECT_TRUE(cq.Poll(&cqe)) << "part " << parts;
    }
    loops = now;
    if (parts > 0) {
      qp.Post(request);
      qp.Ring();
    }
    return ++parts < kParts;
  });
  EXPECT_EQ(parts, kParts);
  EXPECT_TRUE(cq.Wait(&cqe)) << "the request of the last part";
}

// An lcore checks the doorbells again before it sleeps, and wakes if a function leaves one.
TEST(LcoreTest, ADoorbellEndsTheSleep) {
  dataplane::Wire wire(TestDataplane());
  Node node(TestDataplane(), &wire, {});
  dataplane::Lcore& lcore = node.lcore();
  const uint64_t before = lcore.Snapshot().bad_doorbells;
  lcore.Call([&](const dataplane::OnShard& shard) {
    node.context(shard).doorbells(shard).Ring(5);
    EXPECT_TRUE(lcore.worker(shard).HasWork());
  });
  lcore.FinishRound();
  lcore.FinishRound();
  EXPECT_EQ(lcore.Snapshot().bad_doorbells, before + 1);
}

// The counter tells a program that the lcore runs.
TEST(LcoreTest, PublishesTheLoopCounter) {
  dataplane::Wire wire(TestDataplane());
  Node node(TestDataplane(), &wire, {});
  dataplane::ShardClient& session = node.client();
  const Mapping page(session.doorbell_fd(), session.doorbell_bytes());
  auto* doorbells = reinterpret_cast<roci_abi_doorbells*>(page.data());
  const auto told = [&] {
    return std::atomic_ref(doorbells->rounds).load(std::memory_order_relaxed);
  };
  uint32_t last = told();
  for (int i = 0; i < 3; ++i) {
    for (int tries = 0; tries < 5000 && told() == last; ++tries) {
      node.lcore().FinishRound();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ASSERT_NE(told(), last);
    last = told();
    EXPECT_NE(last, 0u) << "that would tell nothing";
  }
}

// A program publishes an entry while the lcore arms the queue. The program has not seen `armed` and
// rings no doorbell, so the lcore must check the queue again. A child process runs the lcore's
// loop; this process is the program.
TEST(LcoreTest, APostWhileTheQueueIsBeingArmedIsExecuted) {
  dataplane::Wire wire(TestDataplane());
  Node node(TestDataplane(), &wire, {});
  AppCq cq(node.client(), 16);
  dataplane::QueuePairConfig config;
  config.type = roce::QpType::kUd;
  config.pd = Node::kPd;
  config.send_cq = config.recv_cq = cq.cq();
  config.max_send_wr = config.max_recv_wr = 4;
  config.max_send_sge = config.max_recv_sge = 1;
  AppQp qp(node.client(), config);
  ASSERT_EQ(ConnectUd(node, qp), roce::ModifyResult::kOk);
  SendRequest refused;  // completes without a frame
  refused.head.opcode = 200;
  refused.head.wr_id = 7;
  qp.Post(refused);
  roci_abi_queue* queue = qp.send_queue();
  bool was_armed = false;
  const auto program = [&](std::span<const std::byte> bytes) {
    roci_abi_queue seen;
    std::memcpy(&seen, bytes.data(), sizeof(seen));
    if (seen.armed != 0 && !was_armed) {
      was_armed = true;
      std::atomic_ref(queue->producer).store(1, std::memory_order_seq_cst);
    }
    return true;
  };
  uint32_t looks = 0;
  node.lcore().Call([&](const dataplane::OnShard& shard) {
    dataplane::Worker& worker = node.lcore().worker(shard);
    // Polled, and without work for long.
    qp.qp().NoteRing(shard, 1);
    qp.qp().NoteRing(shard, 2);
    qp.qp().NoteWork(shard, 0);
    looks = ForEachStep(
        {reinterpret_cast<const std::byte*>(queue), sizeof(*queue)},
        [&] {
          worker.ScheduleVisit(qp.qp());
          worker.RunShortWork();
          worker.RunOnce();
        },
        program);
    qp.qp().ArmSends(shard);
  });
  if (looks == 0) GTEST_SKIP() << "processes may not be traced here";
  EXPECT_TRUE(was_armed);
  roci_abi_cqe cqe;
  ASSERT_TRUE(cq.Poll(&cqe));
  EXPECT_EQ(cqe.wr_id, 7u);
}

// A function that leaves no work does not wake a sleeping lcore.
TEST(LcoreTest, KeepsSleepingIfAFunctionLeavesNoWork) {
  dataplane::Lcore& lcore = TestLcore(0);
  uint64_t least = UINT64_MAX;
  // The lcore wakes once a second by itself, and remains of earlier tests may wake it.
  for (int attempt = 0; attempt < 10 && least != 0; ++attempt) {
    lcore.FinishRound();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto loops = lcore.Snapshot().loops;
    for (int i = 0; i < 100; ++i) lcore.Call([](const dataplane::OnShard&) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    least = std::min<uint64_t>(least, lcore.Snapshot().loops - loops);
  }
  EXPECT_EQ(least, 0U);
}

}  // namespace
}  // namespace roci::testing
