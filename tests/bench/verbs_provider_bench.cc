// Measures the cost of a post and a poll for the program: the plugin's data path on rings in
// ordinary memory, with a simulated daemon that is always ahead.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <memory>

#include "tests/unit/verbs_provider/rings/rings_fixture.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

constexpr uint32_t kKey = 0x100;
constexpr size_t kBufferSize = 4096;
alignas(64) char buffer[kBufferSize];

// A list of `count` requests of `length` bytes each.
void PostSends(benchmark::State& state, ibv_wr_opcode opcode, unsigned flags) {
  const auto length = static_cast<uint32_t>(state.range(0));
  const auto count = static_cast<size_t>(state.range(1));
  FakeSendQueue fake(256, 512);
  fake.queue.auto_inline = 256;
  const auto address = reinterpret_cast<uintptr_t>(buffer);
  fake.keys.Add(kKey, FakeSendQueue::kPd, address, address, kBufferSize);
  ibv_sge sge = {address, length, kKey};
  std::vector<ibv_send_wr> list(count);
  for (size_t i = 0; i < count; ++i) {
    list[i].opcode = opcode;
    list[i].send_flags = flags;
    list[i].sg_list = &sge;
    list[i].num_sge = 1;
    list[i].next = i + 1 < count ? &list[i + 1] : nullptr;
  }
  for (auto _ : state) {
    fake.queue.tail.store(fake.queue.head, std::memory_order_relaxed);
    ibv_send_wr* bad = nullptr;
    if (PostSendList(fake.queue, list.data(), &bad) != 0) abort();
  }
  state.SetItemsProcessed(state.iterations() * state.range(1));
}

void PostReceives(benchmark::State& state) {
  FakeRecvQueue fake(256, 64);
  ibv_sge sge = {reinterpret_cast<uintptr_t>(buffer), kBufferSize, kKey};
  ibv_recv_wr wr = {.wr_id = 1, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  for (auto _ : state) {
    fake.queue.tail.store(fake.queue.head, std::memory_order_relaxed);
    ibv_recv_wr* bad = nullptr;
    if (PostRecvList(fake.queue, &wr, &bad) != 0) abort();
  }
  state.SetItemsProcessed(state.iterations());
}

// The time includes the simulated daemon's writes of the entries: subtract the figure of the same
// number with state.range(1) = 0, where nothing polls.
void Polls(benchmark::State& state) {
  const auto count = static_cast<int>(state.range(0));
  const bool polls = state.range(1) != 0;
  VerbsSession session;
  std::atomic<uint32_t> session_state{kSessionAlive};
  std::unique_ptr<std::atomic<Qp*>[]> qps(new std::atomic<Qp*>[ROCI_ABI_MAX_QP_HANDLES]());
  session.state = &session_state;
  session.qps = qps.get();
  auto qp = std::make_unique<Qp>();
  qp->vqp.qp.qp_num = 7;
  qps[3] = qp.get();
  FakeCompletionRing fake(256);
  auto cq = std::make_unique<Cq>();
  cq->session = &session;
  cq->ring = fake.ring;
  roci_abi_cqe entry = {};
  entry.qpn = 7;
  entry.qp_handle = 3;
  std::vector<ibv_wc> wc(static_cast<size_t>(count));
  for (auto _ : state) {
    for (int i = 0; i < count; ++i) fake.Write(entry);
    if (polls && PollCq(&cq->vcq.cq, count, wc.data()) != count) abort();
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * count);
}

BENCHMARK_CAPTURE(PostSends, write, IBV_WR_RDMA_WRITE, 0)
    ->ArgsProduct({{8, 64, 256, 4096}, {1, 16}});
BENCHMARK_CAPTURE(PostSends, write_inline, IBV_WR_RDMA_WRITE, IBV_SEND_INLINE)->Args({64, 1});
BENCHMARK_CAPTURE(PostSends, read, IBV_WR_RDMA_READ, 0)->Args({4096, 1})->Args({4096, 16});
BENCHMARK(PostReceives);
BENCHMARK(Polls)->ArgsProduct({{1, 16}, {0, 1}});

}  // namespace
}  // namespace roci::provider

BENCHMARK_MAIN();
