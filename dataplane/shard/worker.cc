#include "dataplane/shard/worker.h"

#include <rte_cycles.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/shard/dataplane.h"
#include "roce/work.h"

namespace roci::dataplane {
namespace {

// A function that the control thread runs on the lcore is long if no more of them fit in a second.
constexpr uint64_t kLongCallsPerSecond = 1000;
constexpr uint64_t kEventRetryNs = roce::kNsPerMs;
// Time until the timer of a held queue pair is checked again.
constexpr uint64_t kHeldTimerNs = roce::kNsPerMs;
// Shortest time between two updates of the round counter for programs: one store per context.
constexpr uint64_t kPublishNs = 20'000;
constexpr uint64_t kPublishNsPerContext = 200;
// With more contexts than this, programs could not see updates in time (abi/rings.h): no updates.
constexpr size_t kMostContextsForRounds = 1100;

}  // namespace

Worker::Worker(Dataplane& dataplane, Lcore& lcore, const LcoreOptions& options)
    : dataplane_(dataplane),
      lcore_(lcore),
      options_(options),
      clock_(options.virtual_time.is_used ? Clock::Virtual(VirtualTime::kBeginNs)
                                          : Clock(rte_get_tsc_hz())),
      long_call_tsc_(rte_get_tsc_hz() / kLongCallsPerSecond),
      profile_(options.profile),
      scheduler_(options.fairness),
      stash_(dataplane.frames().mempool()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      is_virtual_(options.virtual_time.is_used),
      programs_(options.virtual_time.quiet_ms * kNsPerMs),
      wheel_(RefreshTime()),
      durable_writer_([&lcore] {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        lcore.WakeIfSleeping();
      }) {
  if (!is_virtual_) return;
  stats_.virtual_ns.Add(now_);
  next_publish_ns_ = UINT64_MAX;  // programs would take time that stands still for a busy processor
}

Worker::~Worker() {
  close(epoll_);
  // Leaked, because threads may still be in these copies.
  for (const auto& orphan : orphans_) new std::shared_ptr<AppCopies>(orphan);
}

void Worker::Run() {
  priority_.Take(options_.realtime, kLcorePriority, RefreshTime());
  RunLoop();
}

bool Worker::RunHere() {
  priority_.MoveHere(RefreshTime());
  return RunLoop();
}

bool Worker::RunLoop() { return is_virtual_ ? LoopVirtually() : Loop(); }

bool Worker::Loop() {
  lcore_.thread_id_.store(gettid(), std::memory_order_relaxed);
  while (!lcore_.stopping()) {
    priority_.NoteRound();
    const bool has_slept = has_slept_;
    const uint64_t received = stats_.rx_packets.value();
    const uint32_t work = RunOnce();
    if (work == kLost) [[unlikely]]
      return false;
    if (has_slept) [[unlikely]]
      JudgeSleep(stats_.rx_packets.value() - received);
    if (work == 0) {
      Idle();
    } else if (port_waits_.are_enabled(shard_)) [[unlikely]] {
      port_waits_.Disable(shard_);
    }
    if (now_ >= priority_.next_change_ns()) [[unlikely]] {
      if (priority_.Adjust(now_, round_busy_)) Yield();
    }
  }
  FlushLanes();
  stash_.Drain();
  return true;
}

uint32_t Worker::RunOnce() {
  StartRound();
  uint32_t work = lcore_.mailbox_.Serve(shard_);
  if (work != 0) [[unlikely]]
    CountCalls(work, round_tsc_);
  EndStage(LcoreStage::kMailbox);
  if (!detached_.empty() || !refused_.empty()) [[unlikely]]
    work += CollectCopies();
  for (DeviceLane* lane : lanes_) work += ReceiveLane(*lane);
  if (!collecting_.empty() && !RunCopies(work)) return kLost;
  EndStage(LcoreStage::kReceive);
  work += CollectDoorbells();
  EndStage(LcoreStage::kDoorbells);
  if (!scheduler_.empty()) work += VisitActive();
  if (!collecting_.empty() && !RunCopies(work)) return kLost;
  EndStage(LcoreStage::kWork);
  if (durable_writer_.HasDone(shard_) || !durable_waiters_.empty()) [[unlikely]]
    work += CollectDurable();
  if (wheel_.DueTick(now_)) work += ExpireTimers();
  EndStage(LcoreStage::kTimers);
  if (events_.has_overflowed(shard_)) [[unlikely]]
    work += FailUsers();
  work += FlushLanes();
  EndStage(LcoreStage::kTransmit);
  events_.Flush(shard_, now_);
  EndStage(LcoreStage::kCompletions);
  if (work != 0) {
    idle_rounds_ = 0;
    last_busy_ns_ = now_;
  }
  round_busy_ = work != 0;
  return work;
}

// Reads the time, once per round; from it follows the duration of the last round.
void Worker::StartRound() {
  const uint64_t tsc = Clock::Tsc();
  (round_busy_ ? stats_.busy_cycles : stats_.idle_cycles).Add(tsc - round_tsc_);
  stats_.loops.Add(1);
  if (round_busy_) stats_.busy_loops.Add(1);
  round_tsc_ = tsc;
  stage_tsc_ = tsc;
  now_ = clock_.At(tsc);
  sent_this_round_ = 0;
  bytes_this_round_ = 0;
  if (events_.has_delayed(shard_) && now_ - last_retry_ns_ > kEventRetryNs) [[unlikely]] {
    last_retry_ns_ = now_;
    events_.Retry(shard_);
  }
  if (events_.next_deadline(shard_) <= now_) [[unlikely]]
    events_.Expire(shard_, now_);
  if (now_ >= next_publish_ns_) [[unlikely]]
    PublishRound();
  if (CopyUse::changes() != changes_seen_) [[unlikely]]
    StopDirectAccess();
}

void Worker::CountCalls(uint32_t count, uint64_t begin_tsc) {
  stats_.calls.Add(count);
  if (Clock::Tsc() - begin_tsc > long_call_tsc_) [[unlikely]]
    stats_.long_calls.Add(1);
}

void Worker::PublishRound() {
  next_publish_ns_ = now_ + kPublishNs + kPublishNsPerContext * contexts_.size();
  if (++published_rounds_ == 0) published_rounds_ = 1;  // 0 means that rounds are not counted
  const uint32_t rounds = contexts_.size() <= kMostContextsForRounds ? published_rounds_ : 0;
  for (VerbsContext* context : contexts_) context->doorbells(shard_).SetRounds(rounds);
}

void Worker::EndStage(LcoreStage stage) {
  if (!profile_) [[likely]]
    return;
  const uint64_t tsc = Clock::Tsc();
  stats_.stage_cycles[static_cast<size_t>(stage)].Add(tsc - stage_tsc_);
  stage_tsc_ = tsc;
}

uint64_t Worker::RefreshTime() {
  now_ = clock_.At(Clock::Tsc());
  return now_;
}

uint32_t Worker::CollectDoorbells() {
  uint32_t rung = 0;
  for (VerbsContext* context : contexts_) {
    if (!context->doorbells(shard_).Pending()) continue;
    uint32_t count = 0;
    rung += context->doorbells(shard_).Collect(kDoorbellsPerRound, [&](uint32_t handle) {
      QueuePair* qp = context->FindQueuePair(shard_, handle);
      if (qp == nullptr) [[unlikely]] {
        if (!context->ServeTags(shard_, handle, now_)) stats_.bad_doorbells.Add(1);
        return;
      }
      qp->Prefetch(shard_);
      rung_[count++] = qp;
    });
    RingAll(count);
  }
  return rung;
}

// With thousands of queue pairs, their lines are not in the cache. Their own lines are already
// being prefetched; this prefetches what these point to, a few queue pairs ahead.
void Worker::RingAll(uint32_t count) {
  constexpr uint32_t kAhead = 8;
  for (uint32_t i = 0; i < std::min(count, kAhead); ++i) rung_[i]->PrefetchWork(shard_);
  for (uint32_t i = 0; i < count; ++i) {
    if (i + kAhead < count) rung_[i + kAhead]->PrefetchWork(shard_);
    Ring(*rung_[i]);
  }
}

// A queue pair that is rung often becomes polled. One that is rung rarely stays armed and is
// visited once.
void Worker::Ring(QueuePair& qp) {
  qp.NoteRing(shard_, now_);
  // SettleCopies lists it. Listed before, it would be first in every round, and with others like it
  // use up the visits of all.
  if (qp.is_waiting_for_copies(shard_)) [[unlikely]]
    return;
  AwaitTurn(qp);
}

uint32_t Worker::ExpireTimers() {
  return wheel_.Advance(now_, kTimersPerRound, [&](TimerNode& node) {
    QueuePair& qp = QueuePair::OfTimer(node);
    if (qp.host(shard_).MayNotRun()) [[unlikely]] {
      wheel_.Set(node, now_ + kHeldTimerNs);
      return;
    }
    // The timeout may be later now than when the timer was set.
    const roce::TimeNs next = qp.core(shard_).NextTimeout();
    if (next <= now_) {
      stats_.timer_expiries.Add(1);
      if (qp.HandleTimeout(shard_, now_).has_transmit) AwaitTurn(qp);
      ApplyEffects(qp);
      return;
    }
    SetTimer(qp, next);
  });
}

// Moves the queue pairs of an overflowed CQ to ERR (IBTA vol 1, 11.6.3.3). The walk is cut into
// slices, so that one program's overflow does not delay other programs.
uint32_t Worker::FailUsers() {
  CompletionQueue& cq = events_.overflowed(shard_);
  const VerbsContext& context = cq.context();
  uint32_t& handle = cq.walked(shard_);
  const uint32_t end = std::min(context.handle_end(), handle + kWalkedPerRound);
  for (; handle < end; ++handle) {
    QueuePair* qp = context.FindQueuePair(shard_, handle);
    if (qp == nullptr || (qp->send_cq() != &cq && qp->recv_cq() != &cq)) continue;
    if (qp->host(shard_).MayNotRun()) {
      qp->FailForQueueLater(shard_);
      qp->host(shard_).AwaitCopies();
      continue;
    }
    qp->FailForQueue(shard_);
    ApplyEffects(*qp);
  }
  if (handle == context.handle_end()) events_.DoneOverflowed(shard_);
  return 1;
}

uint32_t Worker::FlushLanes() {
  uint32_t work = 0;
  for (DeviceLane* lane : lanes_) {
    if (lane->raw != nullptr) work += lane->StageRaw(shard_);
    if (lane->ethdev != nullptr && lane->ethdev->IsHome(lane->lcore)) {
      work += lane->ethdev->ServeOthers();
    }
    if (lane->staged(shard_) != 0) lane->FlushStage(shard_);
    if (lane->tap(shard_) != nullptr) [[unlikely]]
      work += lane->ServeTap(shard_);
  }
  return work;
}

void Worker::AddLane(DeviceLane& lane) {
  lanes_.push_back(&lane);
  port_waits_.Add(shard_, lane);
}

void Worker::RemoveLane(DeviceLane& lane) {
  port_waits_.Remove(shard_, lane);
  std::erase(lanes_, &lane);
}

// Edge triggered, so nobody has to read the eventfd.
void Worker::WatchWake(int fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

TurnShare& Worker::PrepareContext(const VerbsContext& context, size_t queues) {
  const size_t contexts = contexts_.size() + 1;
  collecting_.reserve(contexts);
  detached_.reserve(contexts);
  refused_.reserve(contexts);
  contexts_.reserve(contexts);
  programs_.MakeRoom(contexts);
  events_.MakeRoom(shard_, queues);
  return scheduler_.Join(context.user());
}

void Worker::AddContext(VerbsContext& context, TurnShare& share) noexcept {
  events_.Register(shard_, context.async_events(shard_));
  context.UseTurns(shard_, share);
  contexts_.push_back(&context);
  if (is_virtual_) programs_.Add(context);
  if (context.copies().use()->has_blocked()) changes_seen_ = CopyUse::changes() - 1;
  // The old and the new lcore may or may not be asleep.
  context.doorbells(shard_).SetSleeping(lcore_.wake_.is_sleeping());
  WatchWake(context.wake_fd());
}

void Worker::RemoveContext(VerbsContext& context) {
  std::erase(contexts_, &context);
  if (is_virtual_) programs_.Remove(context);
  scheduler_.Leave(context.turn_share(shard_));
  events_.Unregister(shard_, context.async_events(shard_));
  epoll_ctl(epoll_, EPOLL_CTL_DEL, context.wake_fd(), nullptr);
}

void Worker::AddQueuePair(QueuePair& qp) {
  durable_waiters_.reserve(queue_pairs_ + 1);
  scheduler_.Add(ShareOf(qp));
  records_.Add(std::move(qp.record_storage(shard_)));
  ++queue_pairs_;
  DeviceLane::Of(qp.lane()).Add(shard_, qp);
}

void Worker::RemoveQueuePair(QueuePair& qp) {
  EndStalls(qp);
  --queue_pairs_;
  qp.LeaveCopies(shard_);
  if (qp.has_early_frames(shard_)) DropEarly(qp);
  DeviceLane::Of(qp.lane()).Remove(shard_, qp);
  scheduler_.Remove(ShareOf(qp), qp);
  ForgetDurable(qp);
  wheel_.Cancel(qp.timer(shard_));
  if (roce::SendRecord* lent = qp.TakeRecordsBack(shard_))
    records_.Return(qp.record_class(shard_), lent);
  qp.record_storage(shard_) = records_.Remove(qp.record_class(shard_));
}

// Completions of a queue pair that ends or begins anew must be visible by then: the plugin skips
// those that it sees.
void Worker::EndStalls(QueuePair& qp) {
  for (CompletionQueue* cq : {qp.send_cq(), qp.recv_cq()}) {
    if (cq != nullptr) events_.EndStall(shard_, *cq);
  }
}

void Worker::ScheduleVisit(QueuePair& qp) {
  if (qp.core(shard_).state() == roce::QpState::kReset) EndStalls(qp);
  // Flushed completions must be in the ring before the program gets the answer to the change.
  events_.Publish(shard_);
  ApplyEffects(qp);
  AwaitTurn(qp);
}

}  // namespace roci::dataplane
