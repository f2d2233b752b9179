#include "dataplane/qp/app_copies.h"

#include <linux/futex.h>
#include <rte_mbuf.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <span>

#include "dataplane/base/clock.h"
#include "dataplane/qp/queue_pair.h"
#include "memory/copy.h"
#include "roce/work.h"

namespace roci::dataplane {
namespace {

// A copier thread polls for its end with period kCopierWait. It leaves when no copy has slept for
// kServiceNs; for kServiceAtLimitNs when its user has reached the limit of copier threads.
constexpr timespec kCopierWait{0, 10'000'000};
constexpr uint64_t kServiceNs = roce::kNsPerSecond;
constexpr uint64_t kServiceAtLimitNs = 20'000'000;
constexpr uint64_t kSleepNs = 300'000;

// Whether `work` took longer than kSleepNs and the calling thread slept in it (preemption alone
// does not count).
template <class Work>
bool SleepsIn(Work&& work) {
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_THREAD, &before);
  const uint64_t begun_ns = Clock::Monotonic();
  work();
  if (Clock::Monotonic() - begun_ns < kSleepNs) return false;
  getrusage(RUSAGE_THREAD, &after);
  return before.ru_nvcsw != after.ru_nvcsw;
}

}  // namespace

void AtomicCopy::Run() {
  if (kind == Kind::kWrite) {
    status = memory::AtomicWrite(segment, std::as_bytes(std::span<const uint64_t, 1>(&operand, 1)));
    return;
  }
  const memory::AtomicResult result = kind == Kind::kCompareSwap
                                          ? memory::CompareAndSwap(segment, operand, swap)
                                          : memory::FetchAndAdd(segment, operand);
  status = result.status;
  original = result.original;
}

AppCopies::~AppCopies() {
  gathers_.Settle([](const GatherBatch::Frame& frame) { rte_pktmbuf_free(frame.buffer); });
  for (const Kept& kept : TakeKept()) rte_pktmbuf_free(kept.frame);
  for (const Parked& parked : TakeParked()) rte_pktmbuf_free(parked.frame);
}

void AppCopies::Hold(const OnShard& shard, QueuePair& qp) {
  assert(!is_running_);
  needs_run_ = true;
  has_collected_ = true;
  qp.host(shard).copy_state().Hold(*this);
  Await(shard, qp);
}

void AppCopies::Await(const OnShard&, QueuePair& qp) {
  if (qp.copy_wait_.in == this) return;
  // A queue pair is in one list only: that of the AppCopies that holds it, or else the last one.
  if (qp.copy_wait_.in != nullptr) StopWaiting(qp);
  qp.copy_wait_.in = this;
  waiting_.PushFront(qp);
}

memory::ListLink<QueuePair>& AppCopies::WaitLinkOf(QueuePair& qp) { return qp.copy_wait_.link; }

QueuePair* AppCopies::TakeWaiting(Waiting& waiting) {
  QueuePair* qp = waiting.first();
  if (qp != nullptr) StopWaiting(*qp);
  return qp;
}

void AppCopies::StopWaiting(QueuePair& qp) {
  Waiting::Remove(qp);
  qp.copy_wait_.in = nullptr;
}

void AppCopies::Unhold(const OnShard& shard, QueuePair& qp) {
  qp.host(shard).copy_state().Release();
}

bool AppCopies::AddAtomic(const OnShard& shard, const AtomicCopy& atomic) {
  if (atomic_count_ == kMaxAtomics) return false;
  atomics_[atomic_count_++] = atomic;
  Hold(shard, atomic.host->queue_pair());
  return true;
}

bool AppCopies::Park(const OnShard& shard, rte_mbuf* frame, LaneState& lane, QueuePair& qp) {
  if (parked_count_ == kMaxParked) return false;
  if (parked_count_ == 0 || parked_[parked_count_ - 1].frame != frame) {
    if (parked_frames_ == kMaxParkedFrames ||
        use_->frames.load(std::memory_order_relaxed) >= kMostFramesOfUser) {
      return false;
    }
    use_->frames.fetch_add(1, std::memory_order_relaxed);
    ++parked_frames_;
  }
  if (!is_running_) needs_run_ = true;
  parked_[parked_count_++] = {frame, &lane, &qp};
  qp.host(shard).copy_state().Park(*this);
  return true;
}

void AppCopies::Begin(const OnShard&) {
  needs_run_ = false;
  is_listed_ = false;
  is_running_ = true;
}

void AppCopies::Copy() {
  places_.Copy();
  gathers_.Copy();
  bool has_failed = places_.HasFailed() || gathers_.HasFailed();
  for (uint32_t i = 0; i < atomic_count_; ++i) {
    atomics_[i].Run();
    has_failed |= atomics_[i].status == memory::MemoryStatus::kFault;
  }
  if (!has_failed) return;
  is_gone_ = std::all_of(apps_.begin(), apps_.end(),
                         [](const auto& app) { return app == nullptr || app->IsGone(); });
}

void AppCopies::Detach(const OnShard& shard) {
  if (IsDetached()) return;
  is_detached_.store(true, std::memory_order_relaxed);
  gathers_.ReleaseLanes(shard);
}

bool AppCopies::HandOver(const OnShard&) {
  uint32_t idle = kIdle;
  if (!copier_.compare_exchange_strong(idle, kBusy, std::memory_order_acq_rel)) return false;
  syscall(SYS_futex, &copier_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  return true;
}

void AppCopies::ServeAsCopier(const std::atomic<bool>& stop, const std::function<void()>& done) {
  const auto finish = [&] {
    copier_.store(kIdle, std::memory_order_release);
    SetDone();
    done();
  };
  finish();
  uint64_t slept_ns = Clock::Monotonic();
  while (!stop) {
    if (copier_.load(std::memory_order_acquire) == kBusy) {
      if (SleepsIn([this] { Copy(); })) slept_ns = Clock::Monotonic();
      finish();
    }
    uint32_t idle = kIdle;
    const uint64_t service_ns = use_->threads >= kMostCopiers ? kServiceAtLimitNs : kServiceNs;
    if (Clock::Monotonic() - slept_ns >= service_ns &&
        copier_.compare_exchange_strong(idle, kNone)) {
      break;
    }
    syscall(SYS_futex, &copier_, FUTEX_WAIT_PRIVATE, uint32_t{kIdle}, &kCopierWait, nullptr, 0);
  }
  use_->threads.fetch_sub(1);
}

void AppCopies::Settle(const OnShard& shard) {
  is_running_ = false;
  is_detached_.store(false, std::memory_order_relaxed);
  is_done_.store(false, std::memory_order_relaxed);
  for (uint32_t i = 0; i < atomic_count_; ++i) {
    const AtomicCopy& atomic = atomics_[i];
    if (atomic.host != nullptr) {
      atomic.host->copy_state().KeepAtomic({atomic.status, atomic.original});
    }
  }
  atomic_count_ = 0;
  for (QueuePair* qp = waiting_.first(); qp != nullptr; qp = Waiting::Next(*qp)) Unhold(shard, *qp);
  places_.Settle();
  settled_.store(settled_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

std::span<const AppCopies::Kept> AppCopies::TakeKept() {
  return {kept_.data(), std::exchange(kept_count_, 0)};
}

std::span<const AppCopies::Parked> AppCopies::TakeParked() {
  const uint32_t count = std::exchange(parked_count_, 0);
  use_->frames.fetch_sub(std::exchange(parked_frames_, 0), std::memory_order_relaxed);
  std::copy_n(parked_.begin(), count, unparked_.begin());
  return {unparked_.data(), count};
}

void AppCopies::Forget(const OnShard& shard, QueuePair& qp) {
  const QueuePairHost& host = qp.host(shard);
  places_.Forget(host);
  gathers_.Forget(qp);
  for (uint32_t i = 0; i < atomic_count_; ++i) {
    if (atomics_[i].host == &host) atomics_[i].host = nullptr;
  }
  for (uint32_t i = 0; i < parked_count_; ++i) {
    if (parked_[i].qp == &qp) parked_[i].qp = nullptr;
  }
  if (qp.copy_wait_.in == this) StopWaiting(qp);
}

}  // namespace roci::dataplane
