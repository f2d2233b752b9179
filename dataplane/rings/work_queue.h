// Gate 2: work queues in memory that the program can write. Indices are bounded; every entry is
// copied once, and the copy is checked. State that the daemon trusts is in these objects.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "dataplane/base/prefetch.h"
#include "dataplane/rings/trace.h"
#include "roce/qp_attributes.h"
#include "roce/work.h"
#include "verbs_provider/abi/rings.h"

namespace roci::dataplane {

static_assert(kCacheLineBytes == ROCI_ABI_CACHE_LINE);

// The common part of send and receive queues. `broken`: the program's producer index was
// impossible; no entry is taken from the queue until Reset.
class WorkQueue {
 public:
  WorkQueue() = default;
  // `header` and `slots` are shared with the program. `capacity` is a power of two, or 0 for a
  // queue without entries.
  WorkQueue(roci_abi_queue* header, std::byte* slots, uint32_t capacity, uint32_t stride,
            uint8_t max_sge)
      : header_(header), slots_(slots), capacity_(capacity), stride_(stride), max_sge_(max_sge) {}

  bool broken() const { return broken_; }
  uint32_t taken() const { return next_ - left_out_; }  // entries taken so far

  // Whether the program has posted more than was taken.
  bool HasPosted() {
    if (next_ != seen_) return true;
    return Refresh();
  }

  // Whether the program has posted entries since the producer index was last read.
  bool HasNew() {
    const uint32_t before = seen_;
    Refresh();
    return seen_ != before;
  }

  // True: the program rings the doorbell for entries that it posts from now on. The caller then
  // executes a full fence and checks the queue once more.
  void SetArmed(bool armed) {
    std::atomic_ref(header_->armed).store(armed ? 1 : 0, std::memory_order_relaxed);
    std::atomic_ref(header_->consumer).store(next_, std::memory_order_relaxed);
  }

  // Discards all posted entries and sets both indices to 0.
  void Reset();

  // Posts are recorded in `*trace` whenever it is not null. `trace` outlives the queue.
  void UseTrace(LaneTrace* const* trace, uint32_t qpn) {
    trace_ = trace;
    qpn_ = qpn;
  }

  void PrefetchProducer() const { __builtin_prefetch(&header_->producer); }
  void PrefetchNext() const {
    __builtin_prefetch(Slot(next_));
    __builtin_prefetch(Slot(next_) + kCacheLineBytes);
  }

 protected:
  // Reads the producer index. False: no new entries, or an impossible index.
  bool Refresh();
  // Records the entries of [from, seen_).
  void TracePosts(uint32_t from) const;
  void LeaveOut(uint32_t restarts, uint32_t producer);
  std::byte* Slot(uint32_t index) const {
    return slots_ + size_t{index & (capacity_ - 1)} * stride_;
  }

  roci_abi_queue* header_ = nullptr;
  std::byte* slots_ = nullptr;
  uint32_t capacity_ = 0;
  uint32_t stride_ = 0;
  uint32_t next_ = 0;  // index of the next entry to take
  uint32_t seen_ = 0;  // producer index as last read
  uint32_t restarts_ = 0;
  uint32_t left_out_ = 0;  // indices that the program left out
  uint8_t max_sge_ = 0;
  bool broken_ = false;
  bool is_send_ = false;
  uint32_t qpn_ = 0;
  LaneTrace* const* trace_ = &kNoTrace;

 private:
  static constexpr LaneTrace* kNoTrace = nullptr;
};

class SendQueue : public WorkQueue {
 public:
  SendQueue() = default;
  SendQueue(roci_abi_queue* header, std::byte* slots, uint32_t capacity, uint32_t stride,
            uint8_t max_sge, uint32_t max_inline, roce::QpType type, uint32_t lacking_opcodes = 0);

  // Takes the next entry. kBad: `out` has slot, wr_id and opcode (kSend if the program's opcode
  // does not exist), and `bad_status` has the error.
  roce::FetchResult Fetch(roce::SendWqe& out, roce::CompletionStatus& bad_status);

  // Reads element `i` < wqe.num_sge from the ring; the program may have changed it since Fetch.
  roce::Sge ReadSge(const roce::SendWqe& wqe, uint32_t i) const;
  // The inline bytes of an entry; wqe.length of them.
  std::byte* InlineData(const roce::SendWqe& wqe) const {
    return Slot(wqe.slot) + sizeof(roci_abi_send_wqe);
  }

 private:
  roce::CompletionStatus TakeInline(const roci_abi_send_wqe& head, bool may_be_inline,
                                    roce::SendWqe& out) const;
  roce::CompletionStatus TakeElements(const roci_abi_send_wqe& head, const roci_abi_sge& first,
                                      roce::SendWqe& out) const;

  uint32_t max_inline_ = 0;
  uint32_t allowed_opcodes_ = 0;  // bit i: roci_abi_send_opcode i
  uint8_t allowed_flags_ = 0;     // roci_abi_send_flags
};

class RecvQueue : public WorkQueue {
 public:
  using WorkQueue::WorkQueue;

  roce::FetchResult Fetch(roce::RecvWqe& out, roce::CompletionStatus& bad_status);
  roce::Sge ReadSge(const roce::RecvWqe& wqe, uint32_t i) const;
  // Entries that Fetch can take: those of the last reading of the producer index, which is read
  // again when a quarter of them is taken. The program writes that cache line with every post.
  uint32_t CountPosted() {
    const uint32_t left = seen_ - next_;
    return left > reread_at_ && left <= capacity_ ? left : Recount();
  }

 private:
  uint32_t Recount();

  uint32_t reread_at_ = 0;
};

}  // namespace roci::dataplane
