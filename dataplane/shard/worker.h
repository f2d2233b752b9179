// The loop of one lcore: receive, collect doorbells, visit queue pairs, send, complete, expire
// timers; sleep if there is no work.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "dataplane/base/clock.h"
#include "dataplane/base/counters.h"
#include "dataplane/base/frame_stash.h"
#include "dataplane/base/on_shard.h"
#include "dataplane/base/record_pool.h"
#include "dataplane/base/thread_priority.h"
#include "dataplane/base/timer_wheel.h"
#include "dataplane/qp/app_copies.h"
#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/early_frames.h"
#include "dataplane/qp/host_effects.h"
#include "dataplane/qp/shard_view.h"
#include "dataplane/rings/doorbells.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/durable_writer.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/port_waits.h"
#include "dataplane/shard/program_watch.h"
#include "dataplane/shard/send_scheduler.h"
#include "dataplane/types/slow_path_kind.h"
#include "memory/segment.h"
#include "roce/effects.h"
#include "roce/packet.h"
#include "verbs_provider/abi/yield_judge.h"

namespace roci::dataplane {

class QueuePair;
class VerbsContext;

// Written by the lcore, read by any thread. LcoreSnapshot explains them.
struct WorkerStats {
  Counter loops, busy_loops, busy_cycles, idle_cycles, sleeps, yields;
  Counter wakes_by_doorbell, wakes_by_port;
  Counter rx_bursts, rx_packets, rx_handed_off, tx_packets, calls, bad_doorbells, memory_faults;
  Counter timer_expiries, long_calls;
  Counter async_events, durable_syncs, durable_failures;
  Counter virtual_ns, virtual_jumps, virtual_guesses;
  std::array<Counter, kLcoreStageCount> stage_cycles;
};

// On the shard, except where noted: Lcore::worker() requires the shard's token.
class Worker final {
 public:
  Worker(Dataplane& dataplane, Lcore& lcore, const LcoreOptions& options);
  ~Worker();

  void Run();
  // Runs the loop on a thread that has just become the lcore. False: another thread has become it.
  bool RunHere();
  // Runs one round. Returns the amount of work done; 0: none; kLost: this thread is no longer the
  // lcore.
  static constexpr uint32_t kLost = UINT32_MAX;
  uint32_t RunOnce();
  // Called by the thread that becomes the lcore, which does not wait for the running copy.
  void DetachCopy();

  // ---- Objects that the lcore serves
  // Writing to the eventfd `fd` ends a sleep.
  void WatchWake(int fd);
  void AddLane(DeviceLane& lane);
  void RemoveLane(DeviceLane& lane);
  // Makes room for one more context, which has `queues` completion queues, and for its user's
  // turns. AddContext must follow. May throw; has then changed nothing.
  TurnShare& PrepareContext(const VerbsContext& context, size_t queues);
  void AddContext(VerbsContext& context, TurnShare& share) noexcept;
  void RemoveContext(VerbsContext& context);
  void AddQueuePair(QueuePair& qp);
  void RemoveQueuePair(QueuePair& qp);
  // The first handle in [handle, end) of a queue pair whose program has posted something to send.
  // Looks at kWalkedPerRound handles at most, and returns the handle after them if it has found
  // none.
  uint32_t FindPosted(const OnShard&, const VerbsContext& context, uint32_t handle, uint32_t end);
  // Visits the queue pair, if there is one, between two bursts. True: another visit may send more.
  bool SendPosted(const OnShard&, const VerbsContext& context, uint32_t handle);
  // Called after a change of `qp` outside of the loop: publishes its completions, sets its timer,
  // and visits it in the next round.
  void ScheduleVisit(QueuePair& qp);
  void EndStalls(QueuePair& qp);

  // Control thread: prepares FLUSH for persistence. False: no thread can be created.
  bool PrepareDurable() { return durable_writer_.StartThreads(); }

  CompletionEvents& events() { return events_; }
  // Called when the last context that uses `copies` is destroyed.
  void RemoveCopies(std::shared_ptr<AppCopies> copies);
  WorkerStats& stats() { return stats_; }
  // Any thread: the user whose mapped memory the lcore may access now; null: none. For comparison.
  const CopyUse* memory_in_use() const { return memory_in_use_.load(std::memory_order_relaxed); }
  // Any thread.
  const ShardView& view() const { return view_; }
  uint64_t RefreshTime();
  uint64_t now_ns() const { return now_; }
  // Counts a function that ran on another thread while the lcore was idle, since `begin_tsc`, and
  // may have left work.
  void CountCall(uint64_t begin_tsc) {
    CountCalls(1, begin_tsc);
    last_busy_ns_ = RefreshTime();
  }
  // While the lcore sleeps: whether such a function has left work for which it must wake.
  bool HasWork();
  // On the caller's thread while the lcore is idle: runs rounds until there is no more work, at
  // most kRoundsOfShortWork.
  void RunShortWork();
  // Lets threads of any priority that wait for this processor run first.
  void LetOthersRun();
  // For PriorityGuard, before Run().
  ThreadPriority& priority() { return priority_; }

 private:
  // Frames built per round, so that they are still in the cache when they are received.
  static constexpr uint32_t kPacketsPerRound = 64;
  static constexpr uint32_t kBytesPerRound = 128 << 10;  // as SendScheduler charges them
  static constexpr uint32_t kVisitsPerRound = 64;
  static constexpr uint32_t kBurstsPerRound = 2;
  static constexpr uint32_t kDoorbellsPerRound = 64;
  static constexpr uint32_t kMostDoorbellsPerRound =
      kDoorbellsPerRound + Doorbells::kWordBits - 1;  // a word is collected as a whole
  static constexpr uint32_t kTimersPerRound = 64;
  static constexpr uint32_t kWalkedPerRound = 256;
  static constexpr uint32_t kBurst = DeviceLane::kBurst;
  static constexpr int kMostWakeUps = 16;  // descriptors that one epoll call reports

  // worker.cc
  bool RunLoop();
  bool Loop();
  void StartRound();
  void PublishRound();
  void EndStage(LcoreStage stage);
  void CountCalls(uint32_t count, uint64_t begin_tsc);
  uint32_t CollectDoorbells();
  void RingAll(uint32_t count);
  void Ring(QueuePair& qp);
  uint32_t ExpireTimers();
  uint32_t FailUsers();
  uint32_t FlushLanes();

  // worker_virtual.cc
  bool LoopVirtually();
  bool AwaitPrograms();
  void ServeControl();
  uint32_t RunVirtualRound();
  void SleepReally(uint64_t ns);
  bool KeepsWaiting(uint64_t& since_ns);
  bool AwaitsCaptures();
  bool AwaitsThreads();
  void AdvanceTime();

  // worker_receive.cc
  uint32_t ReceiveLane(DeviceLane& lane);
  uint32_t ReceiveBurst(DeviceLane& lane);
  void ParseBurst(DeviceLane& lane, rte_mbuf** frames, uint32_t count);
  void MarkBacklog(DeviceLane& lane, uint32_t first, uint32_t count);
  static void CountReceived(DeviceLane& lane, rte_mbuf** frames, uint32_t count);
  // True: ownership of the frame was taken, or the frame was freed.
  // `handed_off`: as many frames of the burst, the first ones, were passed on by another lcore.
  bool HandleFrame(DeviceLane& lane, rte_mbuf* frame, uint32_t index, uint32_t handed_off);
  bool HandleOther(DeviceLane& lane, rte_mbuf* frame, roce::DropReason reason);
  bool GiveToControl(DeviceLane& lane, SlowPathKind kind, rte_mbuf* frame);
  bool HandleNoQueuePair(DeviceLane& lane, rte_mbuf* frame, const roce::Packet& packet,
                         bool handed_off);
  bool HandleMulticast(DeviceLane& lane, rte_mbuf* frame, const roce::Packet& packet);
  void SpreadMulticast(DeviceLane& lane, const rte_mbuf* frame);
  // Whether there are other references to the frame.
  enum class Sharing : uint8_t { kNobody, kOthers };
  bool Deliver(DeviceLane& lane, QueuePair& qp, const roce::Packet& packet, rte_mbuf* frame,
               Sharing sharing);
  roce::PacketEffects HandlePacket(QueuePair& qp, const AppCopies* copies,
                                   const roce::Packet& packet);
  bool HandleEarly(DeviceLane& lane, QueuePair& qp, const roce::Packet& packet, rte_mbuf* frame,
                   roce::EarlyAction action);
  void DeliverEarly(DeviceLane& lane, QueuePair& qp);
  rte_mbuf* TakeDue(QueuePair& qp);
  void DropEarly(QueuePair& qp);
  void Touch(QueuePair& qp);
  void VisitTouched();
  void VisitAfterPackets(QueuePair& qp);
  bool SendAfterPackets(QueuePair& qp);

  // worker_flows.cc
  // Applies flow rules to a frame that is no packet of a queue pair. True: only flow rules get it.
  bool HandleFlows(DeviceLane& lane, const rte_mbuf* frame);
  void Sniff(DeviceLane& lane, rte_mbuf** frames, uint32_t count);
  void TakeByRule(DeviceLane& lane, const FlowRule& rule, const roce::FlowKey& key,
                  const rte_mbuf* frame);
  void DeliverRaw(DeviceLane& lane, QueuePair& qp, const roce::FlowKey& key, const rte_mbuf& frame,
                  uint32_t tag);
  uint32_t ReceiveMatched(DeviceLane& lane);

  // worker_receive.cc again
  void FreeFrames(DeviceLane& lane, rte_mbuf** frames, uint32_t count);

  // worker_visit.cc
  TurnShare& ShareOf(QueuePair& qp);
  void AwaitTurn(QueuePair& qp) { scheduler_.Push(ShareOf(qp), qp); }
  uint32_t VisitActive();
  uint32_t TakeTurn(QueuePair& qp);
  void PrefetchAhead();
  struct Progress {
    uint32_t work;   // packets sent; Visit: plus entries taken
    uint32_t bytes;  // that the packets are charged, see SendScheduler
    bool has_more;   // the queue pair may have more to send
  };
  // Takes new work and sends.
  Progress Visit(QueuePair& qp, uint32_t budget);
  Progress Transmit(QueuePair& qp, uint32_t budget);
  void TransmitAnswers(QueuePair& qp);
  // While may_continue(bytes charged so far).
  template <class MayContinue>
  Progress TransmitWhile(QueuePair& qp, MayContinue&& may_continue);
  bool SelectAnswerProgram(QueuePair& qp);
  // Builds the frame of the packet in `tx_` and sends it.
  void Emit(QueuePair& qp, DeviceLane& lane, roce::Polled polled);
  struct Encoded {
    enum class Result : uint8_t {
      kReady,
      kGathersLater,  // the payload is copied later
      kNoMemory,      // the payload cannot be read
      kNoPath,        // there is no such address handle
    };
    uint32_t bytes;  // length of the frame; 0: it could not be built
    Result result;

    static Encoded Ready(uint32_t bytes) { return {bytes, Result::kReady}; }
    static Encoded NoMemory() { return {0, Result::kNoMemory}; }
  };
  Encoded Encode(QueuePair& qp, roce::Polled polled, std::byte* out);
  uint32_t EncodeCnp(const QueuePair& qp, std::byte* out);
  Encoded EncodePieces(const roce::FrameTemplate& frame, std::byte* out);
  Encoded EncodeRaw(QueuePair& qp, roce::Polled polled, std::byte* out);
  Encoded EncodeLater(QueuePair& qp, roce::Polled polled, const roce::FrameTemplate& frame,
                      std::byte* out);
  Encoded GatherLater(QueuePair& qp, const GatherBatch::Frame& frame, std::byte* to,
                      uint32_t bytes);
  uint32_t ReceiverOf(const QueuePair& qp, roce::Polled polled) const;
  void FailTransmit(QueuePair& qp, Encoded::Result result);
  GatherBatch::Frame FrameOf(QueuePair& qp, roce::Polled polled, rte_mbuf* buffer,
                             std::byte* bytes) const;
  void ApplyEffects(QueuePair& qp);
  void ApplyHostEffects(QueuePair& qp);
  void SetTimer(QueuePair& qp, roce::TimeNs next);
  void Rearm(QueuePair& qp);
  void FinishRearming();

  // While it exists, the lcore may access mapped memory of the programs of `copies`.
  class MemoryUse {
   public:
    MemoryUse(Worker& worker, const AppCopies* copies) : in_use_(worker.memory_in_use_) {
      if (copies != nullptr) Switch(copies);
    }
    ~MemoryUse() { Set(nullptr); }
    MemoryUse(const MemoryUse&) = delete;
    MemoryUse& operator=(const MemoryUse&) = delete;
    void Switch(const AppCopies* copies) { Set(copies != nullptr ? copies->use().get() : nullptr); }

   private:
    void Set(const CopyUse* use) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      in_use_.store(use, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    std::atomic<const CopyUse*>& in_use_;
  };

  // worker_copies.cc
  void StopDirectAccess();
  bool MustWait(AppCopies& copies, const QueuePair& qp, const roce::Packet& packet) const;
  bool Park(AppCopies& copies, QueuePair& qp, DeviceLane& lane, rte_mbuf* frame, Sharing sharing);
  bool KeepFrame(AppCopies& copies, const DeviceLane& lane, rte_mbuf* frame, Sharing sharing);
  // Lists copies that need a run. Called after each call that may have collected something.
  void Enlist(AppCopies& copies);
  bool RunCopies(uint32_t& work);
  bool RunCopies(AppCopies& copies);
  uint32_t CollectCopies();
  void SettleCopies(AppCopies& copies);
  void ForgetOrphan(const AppCopies& copies);
  bool CopiesPending() const;
  void SendGathered(const GatherBatch::Frame& frame);
  void Unpark(std::span<const AppCopies::Parked> parked);

  // worker_durable.cc
  void StartDurable(QueuePair& qp);
  uint32_t CollectDurable();
  void RetryDurable(const void* charged_to);
  void ForgetDurable(QueuePair& qp);
  uint64_t DurableSleepNs() const;

  // worker_idle.cc
  void Idle();
  void YieldAtLowPriority();
  void Yield();
  void Sleep();
  bool RearmAll();
  void JudgeSleep(uint64_t frames);
  bool AnythingPending();
  uint64_t NextDue() const;
  uint64_t SleepNs();
  int Wait(uint64_t ns);
  void NoteWakeUp(int ready);

  Dataplane& dataplane_;
  Lcore& lcore_;
  const OnShard shard_;  // the token for all calls of the loop
  LcoreOptions options_;
  Clock clock_;
  uint64_t now_ = 0;
  const uint64_t long_call_tsc_;
  uint64_t round_tsc_ = Clock::Tsc();
  uint64_t stage_tsc_ = 0;
  uint64_t last_busy_ns_ = 0;
  uint64_t last_retry_ns_ = 0;
  uint64_t sleeps_until_ns_ = 0;
  abi::YieldJudge yields_;
  ThreadPriority priority_;
  uint64_t next_publish_ns_ = 0;
  uint32_t published_rounds_ = 0;
  uint32_t idle_rounds_ = 0;
  bool round_busy_ = false;
  bool profile_ = false;
  uint32_t sent_this_round_ = 0;
  uint32_t bytes_this_round_ = 0;
  uint32_t queue_pairs_ = 0;
  std::vector<DeviceLane*> lanes_;
  std::vector<VerbsContext*> contexts_;
  SendScheduler scheduler_;
  FrameStash stash_;
  CompletionEvents events_;
  std::vector<AppCopies*> collecting_;  // those that need a run
  AppCopies* running_copy_ = nullptr;   // the copy that this thread runs
  std::vector<AppCopies*> detached_;    // copied by another thread
  std::vector<AppCopies*> refused_;     // their users have too many such threads already
  uint64_t refused_retry_ns_ = 0;
  std::vector<std::shared_ptr<AppCopies>> orphans_;  // running copies without a context
  std::atomic<const CopyUse*> memory_in_use_{nullptr};
  uint32_t changes_seen_ = 0;  // of CopyUse::changes()
  RecordPool records_;
  EarlyFrames early_;
  bool delivers_early_ = false;  // DeliverEarly is running
  // Queue pairs whose doorbells were rung.
  std::array<QueuePair*, kMostDoorbellsPerRound> rung_;
  // Queue pairs that were armed again and are checked once more after the fence.
  std::array<QueuePair*, kVisitsPerRound> rearmed_;
  uint32_t rearmed_count_ = 0;
  std::array<QueuePair*, kBurst> touched_;
  uint32_t touched_count_ = 0;
  roce::TxPacket tx_;
  memory::SegmentList payload_;
  std::array<roce::Packet, kBurst> packets_;
  std::array<roce::DropReason, kBurst> reasons_;
  bool shares_frames_ = false;    // a frame of the burst has more than one owner
  bool runs_for_caller_ = false;  // RunShortWork is running
  WorkerStats stats_;
  int epoll_ = -1;
  PortWaits port_waits_{epoll_};
  std::array<epoll_event, kMostWakeUps> wake_ups_;
  // With virtual time.
  const bool is_virtual_;
  ProgramWatch programs_;
  // Real time since which AwaitsThreads or AwaitsCaptures; 0: it does not.
  uint64_t threads_since_ns_ = 0, captures_since_ns_ = 0;
  uint64_t answers_ = 0;        // that programs have got, as last seen
  bool has_rechecked_ = false;  // AdvanceTime has found queue pairs that want to send
  bool has_slept_ = false;      // before this round
  PortWaits::Ended sleep_end_ = PortWaits::Ended::kByTime;
  struct DurableWaiter {
    QueuePair* qp;
    const void* charged_to;
  };
  std::vector<DurableWaiter> durable_waiters_;  // waiting for room, in order of arrival
  uint64_t durable_retry_ns_ = 0;
  TimerWheel wheel_;
  DurableWriter durable_writer_;
  DurableRequest durable_request_;
  const ShardView view_{.now_ns = &now_,
                        .events = &events_,
                        .early = &early_,
                        .durable = &durable_request_,
                        .token = OnShardForHosts(shard_)};
};

}  // namespace roci::dataplane
