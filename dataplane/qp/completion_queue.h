// A completion queue: writes CQEs to the ring that the program polls and detects overflow.
// CompletionEvents sends its events.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "dataplane/base/on_shard.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/qp/completion_events.h"
#include "dataplane/types/completion_queue_move.h"
#include "roce/work.h"
#include "verbs_provider/abi/prefetch.h"
#include "verbs_provider/abi/rings.h"

namespace roci::dataplane {

class VerbsContext;

// The queue pair or shared receive queue that a completion belongs to.
struct CompletionOwner {
  uint32_t qpn;
  uint32_t qp_handle;      // or that of the shared receive queue
  bool is_shared = false;  // receives are of a shared receive queue
};

class CompletionQueue {
 public:
  // As CreateCompletionQueue (shard/commands.h).
  static absl::StatusOr<std::unique_ptr<CompletionQueue>> Create(
      VerbsContext& context, CompletionEvents& events, uint32_t entries, uint64_t user_handle,
      std::shared_ptr<EventSocket> channel);

  // The memory of a ring for at least `entries`, which are 1 to kMaxCompletionEntries
  // (dataplane/types/queue_limits.h). `use`: see SharedMemory.
  static absl::StatusOr<SharedMemory> CreateRing(uint32_t entries,
                                                 std::shared_ptr<memory::RetiredUse> use = nullptr);

  // ---- On the shard
  // Makes all withheld entries of the lcore's queues visible.
  void PublishBurst(const OnShard& shard) { events_->Publish(shard); }
  // Appends one entry. On overflow the entry is lost, the CQ is dead and the program gets
  // IBV_EVENT_CQ_ERR.
  //
  // The first entry since the last CompletionEvents::Publish is withheld, and hides those behind
  // it: a polling program reads the line of the next entry over and over. If each entry became
  // visible at once, the program would poll every line while it is written, and each line would
  // move between the two processors.
  void Write(const OnShard& shard, const roce::Completion& completion, const CompletionOwner& owner,
             bool is_send, uint64_t now_ns) {
    if (producer_ - consumer_ >= capacity_ && !MakeRoom(shard)) [[unlikely]]
      return;
    roci_abi_cqe& entry = has_withheld_ ? entries_[producer_ & (capacity_ - 1)] : withheld_;
    Fill(entry, completion, owner, is_send, now_ns);
    std::atomic_ref(entry.generation)
        .store((producer_ >> capacity_shift_) + 1, std::memory_order_release);
    if (!has_withheld_) {
      has_withheld_ = true;
      withheld_index_ = producer_;
      events_->Withhold(shard, *this);
    }
    ++producer_;
    abi::PrefetchForWrite(&entries_[(producer_ + kPrefetchAhead) & (capacity_ - 1)]);
    events_->NoteEntry(
        shard, *this, event_state_,
        completion.solicited || completion.status != roce::CompletionStatus::kSuccess);
  }
  // As Write, changed by a fault: `vendor_error` replaces the status as vendor error; the entry
  // becomes visible `delay_ns` later, and with it those behind it; `loses_event`: the entry, for
  // which RaisesEvent was true, raises none.
  struct Change {
    std::optional<uint32_t> vendor_error;
    uint64_t delay_ns = 0;
    bool loses_event = false;
  };
  void WriteChanged(const OnShard& shard, const roce::Completion& completion,
                    const CompletionOwner& owner, bool is_send, uint64_t now_ns,
                    const Change& change);
  // Whether the next entry raises an event, by itself and not by an earlier one of this burst.
  bool RaisesEvent(const OnShard& shard, bool solicited) const {
    return events_->IsRaisedBy(shard, *this, solicited, /*is_first=*/!has_withheld_);
  }
  // As Write, for an entry that lacks only time and generation.
  void WriteEntry(const OnShard& shard, roci_abi_cqe filled, bool solicited, uint64_t now_ns);
  // A move to a new ring. The control thread copies most entries (CopyEntries), so that the lcore
  // copies at most kMostCopied.
  static constexpr uint32_t kMostCopied = 256;
  // kMoved: the queue continues in the new ring. kCopyFirst: call CopyEntries, then SwapRing again.
  // kDoesNotFit, with nothing changed: the entries do not fit, or `consumer` is impossible.
  enum class MoveResult : uint8_t { kMoved, kCopyFirst, kDoesNotFit };
  MoveResult SwapRing(const OnShard& shard, CompletionQueueMove& move);

  VerbsContext& context() const { return context_; }
  uint32_t& walked(const OnShard&) { return walked_; }
  // IBTA vol 1, 11.6.3.2: takes no more entries, and its queue pairs fail.
  void Overflow(const OnShard& shard);
  // An entry finds no room: the queue overflows, unless it ignores that (IgnoreOverrun).
  void LoseEntry(const OnShard& shard);

  // ---- Control thread
  // Of queue pairs, one for each of their queues, and of shared receive queues.
  uint32_t ref_count() const { return ref_count_; }
  void AddReference() { ++ref_count_; }
  void RemoveReference() { --ref_count_; }
  // Entries that do not fit are lost, without an error. Call before a queue pair uses the CQ.
  void IgnoreOverrun() { ignore_overrun_ = true; }
  Fd TakeFd() { return memory_.TakeFd(); }
  // After kCopyFirst, until all visible entries are copied: copies `most` of them. The lcore goes
  // on; it does not overwrite these entries, because the program does not consume any during
  // RESIZE_CQ. (If it does, the entries are garbled.)
  void CopyEntries(CompletionQueueMove& move, uint32_t most) const;

  // ---- Any thread
  uint64_t user_handle() const { return event_state_.user_handle(); }
  uint32_t capacity() const { return capacity_; }
  static constexpr uint32_t kEntriesOffset = 192;  // of the first entry in the memfd
  uint64_t memory_size() const { return memory_.size(); }
  uint32_t comp_events() const { return event_state_.sent(); }
  uint32_t async_events() const { return async_events_.load(std::memory_order_relaxed); }
  bool overflowed() const { return overflowed_.load(std::memory_order_relaxed); }

 private:
  friend class CompletionEvents;
  // For CompletionEvents, on the shard.
  CompletionEventState& event_state() { return event_state_; }
  const CompletionEventState& event_state() const { return event_state_; }
  // The queue has moved to the lcore of `events`.
  void Join(CompletionEvents& events) { events_ = &events; }
  // Index of the next entry.
  uint32_t producer() const { return producer_; }
  // Makes the entry visible that Write has held back, if there is one.
  void PublishWithheld();
  // Stores the index of the next entry in the ring's header.
  void PublishProducer() {
    std::atomic_ref(header_->producer).store(producer_, std::memory_order_relaxed);
  }
  // Events that the program has asked for: ROCI_ABI_CQ_ARM_*.
  uint32_t arm() const { return std::atomic_ref(header_->arm).load(std::memory_order_relaxed); }
  void Disarm() {
    std::atomic_ref(header_->arm).exchange(ROCI_ABI_CQ_ARM_NONE, std::memory_order_seq_cst);
  }

  static constexpr uint32_t kPrefetchAhead = 4;
  CompletionQueue(VerbsContext& context, CompletionEvents& events, uint64_t user_handle,
                  std::shared_ptr<EventSocket> channel)
      : events_(&events), event_state_(user_handle, std::move(channel)), context_(context) {}
  void UseRing(uint32_t capacity);
  bool MakeRoom(const OnShard& shard);
  static void Fill(roci_abi_cqe& entry, const roce::Completion& completion,
                   const CompletionOwner& owner, bool is_send, uint64_t now_ns);

  roci_abi_cq* header_ = nullptr;
  roci_abi_cqe* entries_ = nullptr;
  uint32_t producer_ = 0;
  uint32_t consumer_ = 0;  // the program's index, as last read and checked
  uint32_t capacity_ = 0;
  uint32_t capacity_shift_ = 0;
  bool has_withheld_ = false;
  std::atomic<bool> overflowed_{false};
  bool ignore_overrun_ = false;
  uint32_t withheld_index_ = 0;
  CompletionEvents* events_;
  CompletionEventState event_state_;
  uint32_t walked_ = 0;  // handles visited since the overflow
  VerbsContext& context_;
  uint32_t ref_count_ = 0;
  roci_abi_cqe withheld_{};
  std::atomic<uint32_t> async_events_{0};
  SharedMemory memory_;
};

inline void CompletionQueue::Fill(roci_abi_cqe& entry, const roce::Completion& completion,
                                  const CompletionOwner& owner, bool is_send, uint64_t now_ns) {
  entry.wr_id = completion.wr_id;
  entry.status = static_cast<uint8_t>(completion.status);
  entry.opcode = static_cast<uint8_t>(completion.opcode);
  entry.flags =
      static_cast<uint16_t>((completion.has_grh ? ROCI_ABI_CQE_GRH : 0) |
                            (completion.checksums_right ? ROCI_ABI_CQE_IP_CHECKSUM_OK : 0) |
                            (completion.has_immediate ? ROCI_ABI_CQE_WITH_IMM : 0) |
                            (completion.has_invalidate ? ROCI_ABI_CQE_WITH_INV : 0) |
                            (is_send           ? ROCI_ABI_CQE_SEND
                             : owner.is_shared ? ROCI_ABI_CQE_SRQ
                                               : 0));
  entry.vendor_error = static_cast<uint32_t>(completion.status);  // not 0 for errors
  entry.byte_length = completion.byte_length;
  entry.immediate = completion.immediate;
  entry.qpn = owner.qpn;
  entry.qp_handle = owner.qp_handle;
  entry.source_qpn = completion.source_qpn.value();
  entry.slot = completion.slot;
  entry.timestamp_ns = now_ns;
  entry.sl = 0;
  entry.pkey_index = 0;
  if (completion.has_grh) {
    entry.datagram = {.header = completion.datagram.header,
                      .reserved = 0,
                      .vlan_tci = completion.datagram.vlan_tci};
  } else {
    entry.flow_tag = completion.flow_tag;
  }
}

}  // namespace roci::dataplane
