// A dataplane thread: runs a Worker on a DPDK lcore and lets other threads run functions on it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>

#include "absl/status/status.h"
#include "dataplane/base/counters.h"
#include "dataplane/base/lcore_wake.h"
#include "dataplane/base/mailbox.h"
#include "dataplane/base/on_shard.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/base/thread_priority.h"
#include "dataplane/shard/memory_watch.h"
#include "dataplane/types/lcore_state.h"

namespace roci::dataplane {

class AppCopies;
class Dataplane;
class DeviceLane;
class PendingReleases;
class QueuePair;
struct ShardView;
struct TurnShare;
class VerbsContext;
class Worker;

class Lcore {
 public:
  Lcore(Dataplane& dataplane, uint32_t index, const LcoreOptions& options);
  ~Lcore();

  // `eal_lcore` is the DPDK lcore to run on. Control thread.
  absl::Status Start(unsigned eal_lcore);
  void Stop();

  // Runs f(shard) on the lcore between two bursts, waits for it and returns its result. While the
  // lcore is idle, before Start and after Stop, f runs on the caller's thread.
  // Rethrows a std::bad_alloc of f. Must not be called from an lcore.
  template <class F>
  auto Call(F&& f) -> std::invoke_result_t<F&, const OnShard&> {
    using Result = std::invoke_result_t<F&, const OnShard&>;
    if constexpr (std::is_void_v<Result>) {
      const auto run = [&f](const OnShard& shard) { return f(shard), true; };
      CallBoxed<bool>(run, &Lcore::Run);
    } else {
      return CallBoxed<Result>(f, &Lcore::Run);
    }
  }

  // As Call, but f always runs on the lcore, at the beginning of a loop iteration.
  template <class F>
  bool CallInRound(F&& f) {
    return CallBoxed<bool>(f, &Lcore::RunInRound);
  }

  // Calls f(shard), a part of a long command, until it returns false. From the second call on, a
  // whole loop iteration separates two calls, so that other queue pairs are served. The first call
  // may run on the caller's thread, as in Call.
  template <class F>
  void CallInParts(F&& f) {
    for (bool has_more = Call(f); has_more;) has_more = CallInRound(f);
  }

  // Blocks until the lcore has started a new loop iteration; the next Call finds it finished.
  void FinishRound();

  uint32_t index() const { return index_; }
  LcoreSnapshot Snapshot() const;
  // 0 before the thread runs.
  pid_t thread_id() const { return thread_id_.load(std::memory_order_relaxed); }
  // 0: ordinary priority; see ThreadPriority.
  int realtime_priority() const;
  uint32_t contexts() const { return contexts_.load(std::memory_order_relaxed); }
  // See Dataplane.
  std::optional<uint32_t> TakeBlocker() { return memory_watch_.TakeBlocker(); }

  // Wakes the lcore if it sleeps. Any thread. The caller has stored the new work and executed a
  // full fence.
  void WakeIfSleeping() { wake_.WakeIfSleeping(); }
  LcoreWake& wake() { return wake_; }

  // As WakeIfSleeping, for short work: if the lcore is idle, the caller's thread does the work
  // instead of waking it. Must not be called from an lcore.
  void WakeForShortWork();

  // On the lcore, between other work: releases the lcore and runs copies.Copy(), which a program
  // can block without limit. False: the copy took too long, and another thread has become the
  // lcore. This thread then served as copier, and must return without touching the lcore, which may
  // be destroyed.
  bool Copy(AppCopies& copies);

  // Control thread. StartToWatch before AttachContext; false: no watch thread can be started, so a
  // program could block the lcore.
  bool StartToWatch();
  // Everything of AttachContext that may throw; `context` will bring `queues` completion queues.
  // AttachContext must follow.
  TurnShare& PrepareContext(const VerbsContext& context, size_t queues);
  void AttachContext(VerbsContext& context, TurnShare& share) noexcept;
  void DetachContext(VerbsContext& context);
  void AttachLane(DeviceLane& lane);
  void DetachLane(DeviceLane& lane);

  Worker& worker(const OnShard&) { return *worker_; }

  // ---- Control thread
  PendingReleases& releases() { return releases_; }
  // Access to the worker from outside the shard.
  const ShardView& view() const;
  // For PriorityGuard, before Start().
  ThreadPriority& priority();
  // Prepares FLUSH for persistence. False: no thread can be created.
  bool PrepareDurable();

 private:
  friend class Worker;
  bool stopping() const { return shared_->stop.load(std::memory_order_relaxed); }
  enum Holder : uint32_t { kItself, kNobody, kCaller };

  // State that threads in a copy, or that serve a program, still use after the lcore has ended.
  struct Shared {
    std::atomic<bool> stop{false};
    // Threads that watch or run the loop, without DPDK's.
    std::atomic<uint32_t> threads{0};
    // Threads in copies that took too long, and threads that serve these programs.
    std::atomic<uint32_t> copiers{0};
    // Of `copiers`: those that release the copies of a program, and perhaps frames.
    std::atomic<uint32_t> releasing{0};
    std::atomic<bool> first_is_copier{false};  // DPDK's thread is one of `copiers`
    Fd wake;                                   // wakes the loop
    Fd watch;                                  // wakes the watch thread
  };
  // The thread that the EAL has created for this lcore.
  static constexpr uint32_t kFirstThread = 0;
  static constexpr uint32_t kMostCopiers = 64;

  // lcore_threads.cc
  // False: no thread can be started.
  bool StartWatching();
  bool Watch(uint32_t number);
  // Whether TakeOver can succeed, apart from the copy's end.
  bool MayTakeOver() const;
  static void PrepareThread();
  void SleepUntilCopy(uint64_t seen);
  void WakeWatch();
  void LookAtMemory();
  // Whether the thread that started a copy at `since_ns` (0: no copy) sleeps in the kernel now.
  bool IsBlocked(uint64_t since_ns) const;
  bool TakeOver(uint32_t number, uint64_t since_ns);
  bool TakeBackAfterCopy(uint32_t number);
  static void BecomeOrdinary();
  void AwaitThreads();

  template <class Result, class F>
  Result CallBoxed(F& f, void (Lcore::*run)(Mailbox::Function, void*)) {
    struct Box {
      F* f;
      bool lacks_memory;
      Result result;
    } box{&f, false, {}};
    const auto function = [](const OnShard& shard, void* p) {
      Box& to_run = *static_cast<Box*>(p);
      try {
        to_run.result = (*to_run.f)(shard);
      } catch (const std::bad_alloc&) {
        to_run.lacks_memory = true;
      }
    };
    (this->*run)(function, &box);
    if (box.lacks_memory) [[unlikely]]
      throw std::bad_alloc();
    return std::move(box.result);
  }
  void Run(Mailbox::Function function, void* argument);
  void RunInRound(Mailbox::Function function, void* argument);
  bool RunWhileIdle(Mailbox::Function function, void* argument);
  void Deliver(Mailbox::Function function, void* argument);
  // On the lcore, while it is idle: other threads run their functions in its place instead of
  // waiting for it.
  void Lend() { holder_.store(kNobody, std::memory_order_release); }
  void TakeBack();
  static int Main(void* self);

  uint32_t index_;
  PendingReleases& releases_;  // of the dataplane
  unsigned eal_lcore_ = 0;
  std::atomic<bool> running_{false};
  LcoreWake wake_;
  std::atomic<uint32_t> contexts_{0};
  std::atomic<pid_t> thread_id_{0};
  std::atomic<uint32_t> holder_{kItself};
  const RealtimeUse realtime_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  // Which thread runs the loop.
  std::atomic<uint32_t> runner_{kFirstThread};
  std::atomic<uint32_t> last_thread_{kFirstThread};  // the number of the last watch thread
  std::atomic<uint64_t> copying_since_ns_{0};        // 0: not in Copy
  std::atomic<uint64_t> copies_begun_{0};
  std::atomic<bool> watch_sleeps_{false};
  MemoryWatch memory_watch_;
  bool is_watched_ = false;  // control thread
  Mailbox mailbox_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace roci::dataplane
