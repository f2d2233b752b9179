// Copies by system calls between frames and the memory of one program: the copies that a round of
// the lcore collects, and the frames and queue pairs that wait for them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "dataplane/qp/gather_batch.h"
#include "dataplane/qp/place_batch.h"
#include "dataplane/types/copy_use.h"
#include "memory/app_memory.h"
#include "memory/intrusive_list.h"
#include "memory/key_table.h"
#include "memory/segment.h"

struct rte_mbuf;

namespace roci::dataplane {

class QueuePair;

// An atomic operation on memory that is accessed by system calls.
struct AtomicCopy {
  enum class Kind : uint8_t { kNone, kCompareSwap, kFetchAdd, kWrite };
  Kind kind = Kind::kNone;
  QueuePairHost* host = nullptr;  // null: destroyed
  memory::Segment segment;
  uint64_t operand = 0;  // the value to compare with or to add, or the 8 bytes to write
  uint64_t swap = 0;
  memory::MemoryStatus status{};
  uint64_t original = 0;

  // Any thread.
  void Run();
};

// Contexts that share keys share one of these.
//
// A round collects copies. Between its stages the worker runs them (Copy), which a program can
// delay without limit, and then completes them. Until then their queue pairs are held: completions
// and packets of held queue pairs wait, and frames for them are parked.
class AppCopies : public std::enable_shared_from_this<AppCopies> {
 public:
  // Limit of threads that wait in copies of one user's programs.
  static constexpr uint32_t kMostCopiers = 4;

  // Limits of parked frames. A multicast frame may be parked for several queue pairs.
  static constexpr uint32_t kMaxParked = 4096;
  static constexpr uint32_t kMaxParkedFrames = 512;
  static constexpr uint32_t kMostFramesOfUser = 1024;
  struct Parked {
    rte_mbuf* frame;
    LaneState* lane;
    QueuePair* qp;  // null: destroyed
  };
  struct Kept {
    rte_mbuf* frame;
    bool to_stash;  // it has no other owner
  };

  // All AppCopies of one user have the same `use`.
  explicit AppCopies(std::shared_ptr<CopyUse> use) : use_(std::move(use)) {}
  ~AppCopies();
  AppCopies(const AppCopies&) = delete;
  AppCopies& operator=(const AppCopies&) = delete;

  // ---- Control thread, while the lcore runs nothing of it
  // Adds a context. Keeps the memory of its program alive as long as this object.
  void Share(std::shared_ptr<const memory::AppMemory> app) {
    if (app != nullptr && app->is_foreign()) places_.MayWait();
    apps_.push_back(std::move(app));
    ++contexts_;
  }
  const std::shared_ptr<CopyUse>& use() const { return use_; }
  // Whether several contexts use it.
  bool IsShared() const { return contexts_ > 1; }
  // Keeps the key table, and with it the mappings of its regions, alive as long as this object.
  void Keep(std::shared_ptr<const memory::KeyTable> keys) { keys_ = std::move(keys); }

  // ---- On the shard: commands of the control thread
  // Removes a context. True: it was the last one.
  bool Leave(const OnShard&) { return --contexts_ == 0; }

  // ---- Any thread
  // The lcore does not wait for the running copies.
  bool IsDetached() const { return is_detached_.load(std::memory_order_relaxed); }
  // Collected copies may wait without a time limit.
  bool IsStalled() const { return IsDetached() || is_refused_.load(std::memory_order_relaxed); }
  // How often Settle was called. Copies that are collected or run now are over when the number has
  // changed.
  uint64_t settled() const { return settled_.load(std::memory_order_acquire); }

  // ---- On the shard: state
  // No copies are collected or running.
  bool IsIdle(const OnShard&) const { return !needs_run_ && !is_running_; }
  // Copies are running: nothing may be added.
  bool IsRunning(const OnShard&) const { return is_running_; }
  // The program's memory needs copies and its user has reached the limit of copier threads: its
  // queue pairs neither send nor receive.
  bool IsShut(const OnShard&) const { return has_collected_ && IsOverLimit(); }
  // The user has reached the limit of copier threads, so these copies must not start yet.
  void SetRefused(const OnShard&, bool refused) {
    is_refused_.store(refused, std::memory_order_relaxed);
  }

  // True once for each run: something has been collected, and the caller must call Begin later. The
  // worker asks after each call that may have collected something.
  bool TakeRunRequest(const OnShard&) { return needs_run_ && !std::exchange(is_listed_, true); }

  // ---- On the shard: collecting
  PlaceBatch& places(const OnShard&) { return places_; }
  GatherBatch& gathers(const OnShard&) { return gathers_; }
  // Holds `qp` until the copies are settled.
  void Hold(const OnShard& shard, QueuePair& qp);
  // Visits `qp` when the copies are settled.
  void Await(const OnShard&, QueuePair& qp);
  // False: no room.
  bool AddAtomic(const OnShard& shard, const AtomicCopy& atomic);
  // Keeps a frame that a collected payload refers to, until Settle.
  bool HasRoomForFrame(const OnShard&) const { return kept_count_ < kept_.size(); }
  void Keep(const OnShard&, rte_mbuf* frame, bool to_stash) {
    kept_[kept_count_++] = {frame, to_stash};
  }
  // Keeps a received frame for `qp` until the next Settle. False: a limit is reached, and the
  // caller keeps the frame. Calls with one frame for several queue pairs must be consecutive.
  bool Park(const OnShard& shard, rte_mbuf* frame, LaneState& lane, QueuePair& qp);

  // ---- Running
  // On the shard.
  void Begin(const OnShard&);
  // Any thread, between Begin and Settle.
  void Copy();
  // After Copy: it failed because the program has ended. Its queue pairs are silent from then on,
  // as those of a removed adapter are; its context will be destroyed soon.
  bool IsGone() const { return is_gone_; }
  // On the shard. The lcore continues without waiting for Copy, which runs on another thread. Call
  // when the copy takes too long or the context is destroyed; a second call does nothing.
  void Detach(const OnShard& shard);
  // Counts that thread as one of the user's copiers.
  void CountCopier() { use_->threads.fetch_add(1); }
  void SetDone() { is_done_.store(true, std::memory_order_release); }
  bool IsDone() const { return is_done_.load(std::memory_order_acquire); }

  // ---- A copier thread, for some time after a copy took too long
  bool HasCopier() const { return copier_.load(std::memory_order_relaxed) != kNone; }
  // The user has reached the limit of copier threads; the next copy must wait.
  bool IsOverLimit() const {
    return !HasCopier() && use_->threads.load(std::memory_order_relaxed) >= kMostCopiers;
  }
  // On the shard: hands the copies to the copier thread, after Begin. False: the thread has ended.
  bool HandOver(const OnShard&);
  // On the thread whose copy took too long: runs the next copies too and calls `done` after each.
  // Returns when no copy has slept for some time or `stop` is set.
  void ServeAsCopier(const std::atomic<bool>& stop, const std::function<void()>& done);
  // Keeps this object for the rest of the process: its frames may be in memory that DPDK has
  // released. Any thread.
  void Leak() {
    if (is_leaked_.exchange(true)) return;
    self_ = shared_from_this();
    leaked_before_ = last_leaked_.exchange(this);
  }

  // ---- On the shard, after Copy, in this order
  // Delivers the results of atomics, releases the held queue pairs, and writes their deferred
  // completions.
  void Settle(const OnShard& shard);
  // The caller becomes the owner of the kept and the parked frames.
  std::span<const Kept> TakeKept(const OnShard&) { return TakeKept(); }
  std::span<const Parked> TakeParked(const OnShard&) { return TakeParked(); }
  // Calls visit(qp) for each queue pair that waited; it may wait again.
  template <class Visit>
  void VisitWaiting(const OnShard&, Visit&& visit) {
    Waiting waiting(std::move(waiting_));
    while (QueuePair* qp = TakeWaiting(waiting)) visit(*qp);
  }

  // `qp` is being reset or destroyed.
  void Forget(const OnShard& shard, QueuePair& qp);
  // The program has ended. Releases all queue pairs that wait for its copies and calls visit(qp)
  // for each of them.
  template <class Visit>
  void Abandon(const OnShard& shard, Visit&& visit) {
    Waiting waiting(std::move(waiting_));
    while (QueuePair* qp = TakeWaiting(waiting)) {
      Forget(shard, *qp);
      Unhold(shard, *qp);
      visit(*qp);
    }
  }

 private:
  static memory::ListLink<QueuePair>& WaitLinkOf(QueuePair& qp);
  using Waiting = memory::IntrusiveList<QueuePair, WaitLinkOf>;

  std::span<const Kept> TakeKept();
  std::span<const Parked> TakeParked();
  // Takes a queue pair out of a list. Null: the list is empty.
  static QueuePair* TakeWaiting(Waiting& waiting);
  static void StopWaiting(QueuePair& qp);
  static void Unhold(const OnShard& shard, QueuePair& qp);

  enum Copier : uint32_t { kNone, kIdle, kBusy };
  static constexpr uint32_t kMaxAtomics = 64;
  PlaceBatch places_;
  GatherBatch gathers_;
  std::shared_ptr<CopyUse> use_;
  // Leak(): a list, in which leak checkers find these objects.
  static inline std::atomic<AppCopies*> last_leaked_{nullptr};
  AppCopies* leaked_before_ = nullptr;
  std::atomic<bool> is_leaked_{false};
  std::shared_ptr<AppCopies> self_;
  std::atomic<uint32_t> copier_{kNone};
  std::atomic<bool> is_detached_{false};
  std::atomic<bool> is_refused_{false};
  std::atomic<uint64_t> settled_{0};
  std::vector<std::shared_ptr<const memory::AppMemory>> apps_;
  std::shared_ptr<const memory::KeyTable> keys_;
  uint32_t contexts_ = 0;
  bool needs_run_ = false;  // something is collected, and Begin was not called
  bool is_listed_ = false;  // the worker knows it
  bool has_collected_ = false;
  bool is_running_ = false;
  bool is_gone_ = false;
  std::atomic<bool> is_done_{false};
  uint32_t atomic_count_ = 0;
  uint32_t kept_count_ = 0;
  uint32_t parked_count_ = 0;
  uint32_t parked_frames_ = 0;
  Waiting waiting_;
  std::array<AtomicCopy, kMaxAtomics> atomics_;
  std::array<Kept, PlaceBatch::kMaxPlaces> kept_;
  std::array<Parked, kMaxParked> parked_;
  std::array<Parked, kMaxParked> unparked_;
};

}  // namespace roci::dataplane
