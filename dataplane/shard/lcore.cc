#include "dataplane/shard/lcore.h"

#include <rte_launch.h>
#include <rte_lcore.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "absl/cleanup/cleanup.h"
#include "dataplane/base/clock.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/dataplane.h"
#include "dataplane/shard/shard_access.h"
#include "dataplane/shard/worker.h"

namespace roci::dataplane {
Lcore::Lcore(Dataplane& dataplane, uint32_t index, const LcoreOptions& options)
    : index_(index), releases_(ShardAccess::ReleasesOf(dataplane)), realtime_(options.realtime) {
  shared_->wake = Fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  shared_->watch = Fd(eventfd(0, EFD_CLOEXEC));
  worker_ = std::make_unique<Worker>(dataplane, *this, options);
  wake_.Use(shared_->wake.get());
  worker_->WatchWake(shared_->wake.get());
}

Lcore::~Lcore() { Stop(); }

absl::Status Lcore::Start(unsigned eal_lcore) {
  eal_lcore_ = eal_lcore;
  shared_->stop = false;
  if (rte_eal_remote_launch(&Lcore::Main, this, eal_lcore) != 0) {
    return absl::InternalError("the DPDK lcore is busy or does not exist");
  }
  running_ = true;
  return absl::OkStatus();
}

void Lcore::Stop() {
  if (!running_) return;
  shared_->stop = true;
  shared_->stop.notify_all();
  wake_.Wake();
  AwaitThreads();
  running_ = false;
  is_watched_ = false;
}

int Lcore::Main(void* self) {
  PrepareThread();
  Lcore& lcore = *static_cast<Lcore*>(self);
  const std::shared_ptr<Shared> shared = lcore.shared_;
  const unsigned eal_lcore = rte_lcore_id();
  lcore.worker_->Run();
  // Another thread may have become the lcore long ago.
  shared->stop.wait(false);
  RTE_PER_LCORE(_lcore_id) = eal_lcore;
  return 0;
}

void Lcore::TakeBack() {
  uint32_t holder = kNobody;
  while (!holder_.compare_exchange_weak(holder, kItself, std::memory_order_acquire)) {
    if (holder == kCaller) worker_->LetOthersRun();
    holder = kNobody;
  }
}

bool Lcore::RunWhileIdle(Mailbox::Function function, void* argument) {
  uint32_t holder = kNobody;
  if (!holder_.compare_exchange_strong(holder, kCaller, std::memory_order_acquire)) return false;
  const uint64_t begin_tsc = Clock::Tsc();
  function(OnShard(), argument);
  worker_->CountCall(begin_tsc);
  const bool wakes = wake_.is_sleeping() && worker_->HasWork();
  holder_.store(kNobody, std::memory_order_release);
  if (wakes) wake_.Wake();
  return true;
}

const ShardView& Lcore::view() const { return worker_->view(); }
ThreadPriority& Lcore::priority() { return worker_->priority(); }
bool Lcore::PrepareDurable() { return worker_->PrepareDurable(); }

int Lcore::realtime_priority() const { return worker_->priority().realtime_priority(); }

void Lcore::WakeForShortWork() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const auto rounds = [](const OnShard&, void* worker) {
    static_cast<Worker*>(worker)->RunShortWork();
  };
  if (running_ && RunWhileIdle(rounds, worker_.get())) return;
  WakeIfSleeping();
}

void Lcore::Run(Mailbox::Function function, void* argument) {
  if (!running_) {
    function(OnShard(), argument);
    return;
  }
  if (RunWhileIdle(function, argument)) return;
  Deliver(function, argument);
}

void Lcore::RunInRound(Mailbox::Function function, void* argument) {
  if (!running_) {
    function(OnShard(), argument);
    return;
  }
  Deliver(function, argument);
}

void Lcore::FinishRound() {
  RunInRound([](const OnShard&, void*) {}, nullptr);
}

void Lcore::Deliver(Mailbox::Function function, void* argument) {
  mailbox_.Post(function, argument, [this] {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    WakeIfSleeping();
  });
}

bool Lcore::StartToWatch() {
  if (running_ && !is_watched_) is_watched_ = StartWatching();
  return is_watched_ || !running_;
}

TurnShare& Lcore::PrepareContext(const VerbsContext& context, size_t queues) {
  memory_watch_.Add(&context, context.copies().use());
  absl::Cleanup undo = [&] { memory_watch_.Remove(&context); };
  TurnShare* share = nullptr;
  Call([&](const OnShard& shard) { share = &worker(shard).PrepareContext(context, queues); });
  std::move(undo).Cancel();
  WakeWatch();
  return *share;
}

void Lcore::AttachContext(VerbsContext& context, TurnShare& share) noexcept {
  Call([&](const OnShard& shard) { worker(shard).AddContext(context, share); });
  contexts_.fetch_add(1, std::memory_order_relaxed);
}

void Lcore::DetachContext(VerbsContext& context) {
  Call([&](const OnShard& shard) { worker(shard).RemoveContext(context); });
  memory_watch_.Remove(&context);
  contexts_.fetch_sub(1, std::memory_order_relaxed);
}

void Lcore::AttachLane(DeviceLane& lane) {
  Call([&](const OnShard& shard) { worker(shard).AddLane(lane); });
}

void Lcore::DetachLane(DeviceLane& lane) {
  Call([&](const OnShard& shard) { worker(shard).RemoveLane(lane); });
}

LcoreSnapshot Lcore::Snapshot() const {
  const WorkerStats& stats = worker_->stats();
  LcoreSnapshot out;
  out.loops = stats.loops.value();
  out.busy_loops = stats.busy_loops.value();
  out.busy_cycles = stats.busy_cycles.value();
  out.idle_cycles = stats.idle_cycles.value();
  out.sleeps = stats.sleeps.value();
  out.wakes_by_doorbell = stats.wakes_by_doorbell.value();
  out.wakes_by_port = stats.wakes_by_port.value();
  out.yields = stats.yields.value();
  out.rx_bursts = stats.rx_bursts.value();
  out.rx_handed_off = stats.rx_handed_off.value();
  out.rx_packets = stats.rx_packets.value();
  out.tx_packets = stats.tx_packets.value();
  out.calls = stats.calls.value();
  out.long_calls = stats.long_calls.value();
  out.bad_doorbells = stats.bad_doorbells.value();
  out.comp_events = worker_->events().sent.value();
  out.events_delayed = worker_->events().delayed.value();
  out.events_slow = worker_->events().slow.value();
  out.events_lost = worker_->events().lost.value();
  out.async_events = stats.async_events.value();
  out.memory_faults = stats.memory_faults.value();
  out.memory_blocked = memory_watch_.blocked();
  out.timer_expiries = stats.timer_expiries.value();
  out.durable_syncs = stats.durable_syncs.value();
  out.durable_failures = stats.durable_failures.value();
  out.virtual_ns = stats.virtual_ns.value();
  out.virtual_jumps = stats.virtual_jumps.value();
  out.virtual_guesses = stats.virtual_guesses.value();
  for (size_t i = 0; i < kLcoreStageCount; ++i) out.stage_cycles[i] = stats.stage_cycles[i].value();
  return out;
}

}  // namespace roci::dataplane
