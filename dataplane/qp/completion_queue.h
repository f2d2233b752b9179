// One completion queue: writes entries to the ring that the app polls, notices overflow, sends
// completion events.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/base/counters.h"
#include "dataplane/base/shared_memory.h"
#include "roce/work.h"
#include "verbs_provider/abi/prefetch.h"
#include "verbs_provider/abi/rings.h"

namespace roci::dataplane {

class AsyncEvents;
class CompletionQueue;
class Session;

// When the event of an armed CQ is sent: once `count` entries have come since, or `period_ns` after
// the first of them. 0 leaves a condition out; without any, at once.
struct EventModeration {
  uint32_t count = 0;
  uint64_t period_ns = 0;
  bool none() const { return count <= 1 && period_ns == 0; }
};

// The CQs of one lcore that got entries in this burst, hold an event back, or wait for room in
// their event pipe.
class CompletionEvents {
 public:
  // A CQ more, or less, on this lcore: storage grows here and never on the hot path.
  void Register();
  void Unregister(CompletionQueue& cq);
  // Registers one that another lcore has unregistered, with the event that it may owe.
  void Adopt(CompletionQueue& cq);
  void Touch(CompletionQueue& cq) { touched_.push_back(&cq); }
  void Withhold(CompletionQueue& cq) { withheld_.push_back(&cq); }
  // Lets the apps see what was written since the last call. See CompletionQueue::Write.
  void Publish() {
    if (!withheld_.empty()) PublishWithheld();
  }
  bool empty() const { return touched_.empty(); }
  bool has_delayed() const { return owed_ != 0; }
  // Called once per burst, after its last entry was written.
  void Flush(uint64_t now_ns);
  void Moderate(CompletionQueue& cq, const EventModeration& moderation, uint64_t now_ns);
  static constexpr uint64_t kNever = ~uint64_t{0};
  // When an event that is held back is due next; nanoseconds as `now_ns`.
  uint64_t next_deadline() const { return next_deadline_; }
  // Sends what is due, a few at a time.
  void Expire(uint64_t now_ns);
  // Tries again to write events for which there was no room, asynchronous ones too.
  void Retry();
  // A session more, or less, on this lcore, with the events that wait.
  void Register(AsyncEvents& events);
  void Unregister(AsyncEvents& events);
  // `events` has some that wait, from now on.
  void AwaitRoom(AsyncEvents& events);
  // Writes nothing to the pipe `channel` while it is this one: its events are owed. -1: none.
  void Hold(int channel) { held_channel_ = channel; }

  // Queues that have overflowed and whose queue pairs are still to be told. Of each, the lcore
  // walks over the session's queue pairs in slices, counted by `walked()`.
  bool has_overflowed() const { return !overflowed_.empty(); }
  CompletionQueue& overflowed() { return *overflowed_.back(); }
  void DoneOverflowed() { overflowed_.pop_back(); }

  Counter sent;
  Counter delayed;
  Counter lost;  // asynchronous events that found the backlog full, or nobody to read them

 private:
  void CountOwed();
  void PublishWithheld();
  static void Claim(CompletionQueue& cq);
  static bool IsWanted(const CompletionQueue& cq);
  void SendClaimed(CompletionQueue& cq);
  void Consider(CompletionQueue& cq, uint64_t now_ns);
  void HoldBack(CompletionQueue& cq, uint64_t now_ns);
  void LetGo(CompletionQueue& cq);
  void Send(CompletionQueue& cq);
  size_t queues_ = 0;
  std::vector<CompletionQueue*> held_;
  uint64_t next_deadline_ = kNever;  // never later than the earliest of `held_`
  std::vector<CompletionQueue*> touched_;
  std::vector<CompletionQueue*> withheld_;  // those with an entry that is not in the ring yet
  static constexpr size_t kRetriesPerCall = 16;
  std::vector<CompletionQueue*> delayed_;
  std::vector<AsyncEvents*> waiting_;
  size_t sessions_ = 0;
  size_t owed_ = 0;  // entries of both
  int held_channel_ = -1;
  friend class CompletionQueue;
  std::vector<CompletionQueue*> overflowed_;
};

// Who a completion belongs to.
struct CompletionOwner {
  uint32_t qpn;
  uint32_t qp_handle;      // or that of the shared receive queue
  bool is_shared = false;  // receives are of a shared receive queue
};

class CompletionQueue {
 public:
  static constexpr uint32_t kMaxEntries = 1u << 22;

  // As Session::CreateCompletionQueue.
  static absl::StatusOr<std::unique_ptr<CompletionQueue>> Create(Session& session,
                                                                 CompletionEvents& events,
                                                                 uint32_t entries,
                                                                 uint64_t user_handle, int channel);

  // The memory of a ring for at least `entries`, which are 1..kMaxEntries.
  static absl::StatusOr<SharedMemory> CreateRing(uint32_t entries);

  // ---- On the lcore
  // Lets apps see all entries of the lcore's queues that are held back.
  void PublishBurst() { events_->Publish(); }
  // Appends one entry. On overflow it is lost, the CQ is dead from then on and the session gets
  // IBV_EVENT_CQ_ERR.
  // The first entry since the last CompletionEvents::Publish is held back, and with it all that
  // follow: an app that waits for it reads its line over and over. Were each entry to appear by
  // itself, the app would do so to every line just when it is written, and each would have to be
  // fetched back from the app's processor.
  void Write(const roce::Completion& completion, const CompletionOwner& owner, bool is_send,
             uint64_t now_ns) {
    if (producer_ - consumer_ >= capacity_ && !MakeRoom()) [[unlikely]]
      return;
    roci_abi_cqe& entry = has_withheld_ ? entries_[producer_ & (capacity_ - 1)] : withheld_;
    Fill(entry, completion, owner, is_send, now_ns);
    std::atomic_ref(entry.generation)
        .store((producer_ >> capacity_shift_) + 1, std::memory_order_release);
    if (!has_withheld_) {
      has_withheld_ = true;
      withheld_index_ = producer_;
      events_->Withhold(*this);
    }
    ++producer_;
    abi::PrefetchForWrite(&entries_[(producer_ + kPrefetchAhead) & (capacity_ - 1)]);
    solicited_ |= completion.solicited || completion.status != roce::CompletionStatus::kSuccess;
    if (!touched_) {
      touched_ = true;
      events_->Touch(*this);
    }
  }
  // As Write, for an entry that is filled in but for time and generation.
  void WriteEntry(roci_abi_cqe filled, bool solicited, uint64_t now_ns);
  // Continues in `ring`, into which the unconsumed entries are copied. False: they do not fit, or
  // `consumer` is impossible. `ring` then holds the old one.
  bool SwapRing(SharedMemory& ring, uint32_t capacity, uint32_t consumer);

  Session& session() const { return session_; }
  uint32_t& walked() { return walked_; }

  // ---- Any thread
  uint64_t user_handle() const { return user_handle_; }
  uint32_t capacity() const { return capacity_; }
  static constexpr uint32_t kEntriesOffset = 192;  // of the first entry in the memfd
  uint64_t memory_size() const { return memory_.size(); }
  uint32_t comp_events() const { return comp_events_.load(std::memory_order_relaxed); }
  uint32_t async_events() const { return async_events_.load(std::memory_order_relaxed); }
  bool overflowed() const { return overflowed_; }
  uint32_t users() const { return users_; }  // queue pairs; control thread only
  // Before the first queue pair uses it: entries for which there is no room are lost, and that is
  // all.
  void IgnoreOverrun() { ignore_overrun_ = true; }
  void AddUser() { ++users_; }
  void RemoveUser() { --users_; }
  Fd TakeFd() { return memory_.TakeFd(); }

 private:
  friend class CompletionEvents;
  static constexpr uint32_t kPrefetchAhead = 4;
  CompletionQueue(Session& session, CompletionEvents& events, uint64_t user_handle, int channel)
      : events_(&events), session_(session), user_handle_(user_handle), channel_(channel) {}
  void UseRing(uint32_t capacity);
  bool MakeRoom();
  void PublishWithheld();
  static void Fill(roci_abi_cqe& entry, const roce::Completion& completion,
                   const CompletionOwner& owner, bool is_send, uint64_t now_ns);

  roci_abi_cq* header_ = nullptr;
  roci_abi_cqe* entries_ = nullptr;
  uint32_t producer_ = 0;
  uint32_t consumer_ = 0;  // the app's, as last read and believed
  uint32_t capacity_ = 0;
  uint32_t capacity_shift_ = 0;
  bool touched_ = false;    // in the list of this burst
  bool solicited_ = false;  // this burst has an entry that wakes a CQ armed for solicited ones
  bool has_withheld_ = false;
  uint32_t withheld_index_ = 0;
  uint32_t claimed_ = 0;  // events of this burst that are to be sent once its entries are seen
  bool delayed_ = false;  // an event waits for room in the pipe
  bool overflowed_ = false;
  bool ignore_overrun_ = false;
  uint32_t walked_ = 0;  // handles looked at since the overflow
  bool held_ = false;    // an event is held back
  EventModeration moderation_;
  uint32_t unannounced_ = 0;  // index of the first entry since the queue was armed; if moderated
  uint64_t deadline_ns_ = 0;  // of an event held back
  CompletionEvents* events_;
  Session& session_;
  uint64_t user_handle_;
  int channel_;
  uint32_t users_ = 0;
  roci_abi_cqe withheld_{};
  std::atomic<uint32_t> comp_events_{0};
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
  entry.vendor_error = 0;
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
