// The copies between frames and one program's memory that take system calls: what a round of the
// lcore collects of them, and what waits until they are done.
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

#include "dataplane/qp/gather_batch.h"
#include "dataplane/qp/place_batch.h"
#include "memory/app_memory.h"
#include "memory/key_table.h"
#include "memory/segment.h"

struct rte_mbuf;

namespace roci::dataplane {

class QueuePair;

// An atomic on memory that is reached by system calls.
struct AtomicCopy {
  enum class Kind : uint8_t { kNone, kCompareSwap, kFetchAdd, kWrite };
  Kind kind = Kind::kNone;
  QueuePairHost* host = nullptr;  // null: it is gone
  memory::Segment segment;
  uint64_t operand = 0;  // to compare with, to add; the 8 bytes to write
  uint64_t swap = 0;
  memory::MemoryStatus status{};
  uint64_t original = 0;

  // Any thread.
  void Run();
};

// Counts what all programs of one user take of the limits below. Thread-safe.
struct CopyUse {
  std::atomic<uint32_t> threads{0};  // copier threads
  std::atomic<uint32_t> frames{0};   // parked frames
};

// Those whose sessions share keys have one of these together. On the lcore, except for what says
// otherwise.
//
// Within a round copies are collected; at points where nothing else is under way the worker runs
// them (Copy), which may take as long as the program likes, and then settles them. Meanwhile the
// queue pairs concerned are held: what they tell their program and their peers waits, and frames
// for them are parked.
class AppCopies : public std::enable_shared_from_this<AppCopies> {
 public:
  // Threads that may wait in copies of one user's programs.
  static constexpr uint32_t kMostCopiers = 4;

  // Of frames that wait for a queue pair that is held; a multicast frame may wait for many.
  static constexpr uint32_t kMaxParked = 4096;
  static constexpr uint32_t kMaxParkedFrames = 512;
  static constexpr uint32_t kMostFramesOfUser = 1024;
  struct Parked {
    rte_mbuf* frame;
    LaneState* lane;
    QueuePair* qp;  // null: it is gone
  };
  struct Kept {
    rte_mbuf* frame;
    bool to_stash;  // nobody else refers to it
  };

  // `collecting` is the worker's list of those that have collected something. All AppCopies of one
  // user have the same `use`.
  AppCopies(std::vector<AppCopies*>* collecting, std::shared_ptr<CopyUse> use)
      : collecting_(collecting), use_(std::move(use)) {}
  ~AppCopies();
  AppCopies(const AppCopies&) = delete;
  AppCopies& operator=(const AppCopies&) = delete;

  // ---- Control thread, while the lcore runs nothing of it
  // Goes to another worker. Nothing is collected.
  void MoveTo(std::vector<AppCopies*>* collecting) { collecting_ = collecting; }
  // By a session. Its program's memory stays for as long as this.
  void Share(std::shared_ptr<const memory::AppMemory> app) {
    if (app != nullptr && app->is_foreign()) places.MayWait();
    apps_.push_back(std::move(app));
    ++sessions_;
  }
  // Whether several sessions use it.
  bool IsShared() const { return sessions_ > 1; }
  // Keeps the key table, and with it the mappings of its regions, alive as long as this object.
  void Keep(std::shared_ptr<const memory::KeyTable> keys) { keys_ = std::move(keys); }
  // Keeps mappings alive until the next Settle.
  void Keep(memory::ReleasedMappings mappings) {
    std::move(mappings.begin(), mappings.end(), std::back_inserter(released_));
  }
  // A session ends. True: it was the last.
  bool Leave() { return --sessions_ == 0; }

  // ---- State
  // Nothing is collected and nothing runs.
  bool IsIdle() const { return !is_listed_ && !is_running_; }
  // Copies are under way: nothing may be added.
  bool IsRunning() const { return is_running_; }
  // The lcore does not wait for them. Any thread.
  bool IsDetached() const { return is_detached_.load(std::memory_order_relaxed); }
  // The user has reached the limit of copier threads, so these copies must not start yet.
  void SetRefused(bool refused) { is_refused_.store(refused, std::memory_order_relaxed); }
  // The program's memory needs copies and its user has reached the limit of copier threads: its
  // queue pairs neither send nor receive.
  bool IsShut() const { return has_collected_ && IsOverLimit(); }
  // Collected copies may wait without a time limit. Any thread.
  bool IsStalled() const { return IsDetached() || is_refused_.load(std::memory_order_relaxed); }

  // ---- Collecting
  PlaceBatch places;
  GatherBatch gathers;
  // `qp` is held until the copies are settled.
  void Hold(QueuePair& qp);
  // `qp` is to be visited when the copies are settled.
  void Await(QueuePair& qp);
  // False: full.
  bool AddAtomic(const AtomicCopy& atomic);
  // A frame that a place refers to.
  bool HasRoomForFrame() const { return kept_count_ < kept_.size(); }
  void Keep(rte_mbuf* frame, bool to_stash) { kept_[kept_count_++] = {frame, to_stash}; }
  // Until the next Settle. False: a limit is reached, the frame stays the caller's. Calls for
  // several queue pairs with the same frame follow each other.
  bool Park(rte_mbuf* frame, LaneState& lane, QueuePair& qp);

  // ---- Running
  void Begin();
  // Any thread, between Begin and Settle.
  void Copy();
  // After Copy: it failed because no program is there any more. Its queue pairs are silent from
  // then on, as an adapter's are when it takes them away; the session is about to end.
  bool IsGone() const { return is_gone_; }
  // The lcore continues without waiting for Copy, which another thread makes or continues. Called
  // when the copy takes too long or when the session ends; the second call does nothing.
  void Detach();
  // That thread is one more of the user's copiers.
  void CountCopier() { use_->threads.fetch_add(1); }
  void SetDone() { is_done_.store(true, std::memory_order_release); }
  bool IsDone() const { return is_done_.load(std::memory_order_acquire); }

  // ---- A thread of its own, for a while after a copy took too long
  bool HasCopier() const { return copier_.load(std::memory_order_relaxed) != kNone; }
  // Its user has as many threads as one may have; the next copy has to wait.
  bool IsOverLimit() const {
    return !HasCopier() && use_->threads.load(std::memory_order_relaxed) >= kMostCopiers;
  }
  // After Begin and Detach. False: it has gone meanwhile.
  bool HandOver();
  // On the thread that made the copy that took too long: serves those that follow, calls `done`
  // after each, and returns when none has slept for a while or when `stop` is set.
  void ServeAsCopier(const std::atomic<bool>& stop, const std::function<void()>& done);

  // ---- After Copy, in this order
  // Atomics answer, queue pairs are held no more, and what they tell their program is told.
  void Settle();
  // What was kept and parked is taken out by the caller, who frees it or goes on with it.
  std::span<const Kept> TakeKept();
  std::span<const Parked> TakeParked();
  // Calls visit(qp) for each queue pair that waited; it may wait again.
  template <class Visit>
  void VisitWaiting(Visit&& visit) {
    for (QueuePair* qp = std::exchange(waiting_, nullptr); qp != nullptr;) {
      QueuePair* next = NextWaiting(*qp);
      visit(*qp);
      qp = next;
    }
  }

  // `qp` is about to go.
  void Forget(QueuePair& qp);
  // The program has ended. Releases all queue pairs that wait for its copies and calls visit(qp)
  // for each of them.
  template <class Visit>
  void Abandon(Visit&& visit) {
    for (QueuePair* qp = std::exchange(waiting_, nullptr); qp != nullptr;) {
      QueuePair* next = NextWaiting(*qp);
      Forget(*qp);
      Unhold(*qp);
      visit(*qp);
      qp = next;
    }
  }

 private:
  void Enlist();
  // Takes `qp` out of the list that it is the first of.
  static QueuePair* NextWaiting(QueuePair& qp);
  void Unlist(QueuePair& qp);
  static void Unhold(QueuePair& qp);

  enum Copier : uint32_t { kNone, kIdle, kBusy };
  static constexpr uint32_t kMaxAtomics = 64;
  std::vector<AppCopies*>* collecting_;
  std::shared_ptr<CopyUse> use_;
  std::atomic<uint32_t> copier_{kNone};
  std::atomic<bool> is_detached_{false};
  std::atomic<bool> is_refused_{false};
  std::vector<std::shared_ptr<const memory::AppMemory>> apps_;
  std::shared_ptr<const memory::KeyTable> keys_;
  memory::ReleasedMappings released_;
  uint32_t sessions_ = 0;
  bool is_listed_ = false;  // in `collecting_`
  bool has_collected_ = false;
  bool is_running_ = false;
  bool is_gone_ = false;
  std::atomic<bool> is_done_{false};
  uint32_t atomic_count_ = 0;
  uint32_t kept_count_ = 0;
  uint32_t parked_count_ = 0;
  uint32_t parked_frames_ = 0;
  QueuePair* waiting_ = nullptr;  // a list by QueuePair::next_waiting
  std::array<AtomicCopy, kMaxAtomics> atomics_;
  std::array<Kept, PlaceBatch::kMaxPlaces> kept_;
  std::array<Parked, kMaxParked> parked_;
  std::array<Parked, kMaxParked> unparked_;
};

}  // namespace roci::dataplane
