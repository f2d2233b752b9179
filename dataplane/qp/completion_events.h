// When the programs of one lcore's completion queues get their completion events: arming,
// moderation and full event sockets. CompletionQueue writes the entries.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "dataplane/base/counters.h"
#include "dataplane/base/event_writer.h"
#include "dataplane/base/on_shard.h"
#include "dataplane/types/completion_queue_info.h"

namespace roci::dataplane {

class AsyncEvents;
class CompletionQueue;

// The state of one completion queue's events. On the lcore of the queue, except where noted.
class CompletionEventState {
 public:
  // `channel`: the program's event socket; null: none.
  CompletionEventState(uint64_t user_handle, std::shared_ptr<EventSocket> channel)
      : user_handle_(user_handle), channel_(std::move(channel)) {}

  // The entries have moved to an index lower by `distance`.
  void MoveDown(uint32_t distance) { unannounced_ -= distance; }

  // ---- Any thread
  uint64_t user_handle() const { return user_handle_; }
  uint32_t sent() const { return sent_.load(std::memory_order_relaxed); }

 private:
  friend class CompletionEvents;
  bool touched_ = false;      // in the list of this burst
  bool solicited_ = false;    // this burst has an entry that wakes a CQ armed for solicited ones
  bool delayed_ = false;      // an event waits for room in the socket
  bool held_ = false;         // an event is held back by moderation
  bool stalled_ = false;      // entries are withheld beyond the burst
  uint32_t claimed_ = 0;      // events of this burst to be sent once its entries are visible
  uint32_t unannounced_ = 0;  // index of the first entry since the queue was armed; if moderated
  std::atomic<uint32_t> sent_{0};
  uint64_t user_handle_;
  uint64_t deadline_ns_ = 0;  // of an event held back
  uint64_t stalled_until_ns_ = 0;
  EventModeration moderation_;
  const std::shared_ptr<EventSocket> channel_;
};

// The scheduler of one lcore: the CQs with entries of this burst, with an event that moderation
// holds back, or with an event that waits for room in its socket. On the shard.
class CompletionEvents {
 public:
  // Storage grows here and in Register, never on the hot path: room for one more context and for
  // `queues` more CQs.
  void MakeRoom(const OnShard&, size_t queues);
  // Adds or removes a CQ of this lcore.
  void Register(const OnShard&);
  void Unregister(const OnShard&, CompletionQueue& cq);
  // Adds, after MakeRoom, a CQ that another lcore has removed, with its unsent event if it has one.
  void Adopt(const OnShard& shard, CompletionQueue& cq);
  // `cq`, whose state is `state`, has written an entry. `solicited`: the entry also wakes a program
  // that waits for solicited ones only.
  void NoteEntry(const OnShard&, CompletionQueue& cq, CompletionEventState& state, bool solicited) {
    state.solicited_ |= solicited;
    if (state.touched_) return;
    state.touched_ = true;
    touched_.push_back(&cq);
  }
  // `cq` has an entry that is not visible before Publish.
  void Withhold(const OnShard&, CompletionQueue& cq) { withheld_.push_back(&cq); }
  // Makes all entries visible to the programs. See CompletionQueue::Write.
  void Publish(const OnShard&) {
    if (!withheld_.empty()) PublishWithheld();
  }
  bool empty(const OnShard&) const { return touched_.empty(); }
  // Calls visit(cq) for each queue with entries of this burst.
  template <class Visit>
  void VisitTouched(const OnShard&, Visit&& visit) const {
    for (const CompletionQueue* cq : touched_) visit(*cq);
  }
  bool has_delayed(const OnShard&) const { return delayed_count_ != 0; }
  // Sends the events of this burst's entries. Called once per burst, after its last entry.
  void Flush(const OnShard& shard, uint64_t now_ns);
  void Moderate(const OnShard&, CompletionQueue& cq, const EventModeration& moderation,
                uint64_t now_ns);
  // `cq` has just written an entry and withholds it: neither this entry nor those behind it become
  // visible before `until_ns`, and the program gets no event for them. Nothing if `cq` is stalled
  // already.
  void Stall(const OnShard&, CompletionQueue& cq, uint64_t until_ns);
  // Makes the withheld entries of a stalled queue visible; the next Flush sends their event.
  void EndStall(const OnShard& shard, CompletionQueue& cq);
  // Whether the next entry of `cq` raises its event, by itself and not by an earlier entry or a
  // timer. `solicited`: see NoteEntry. `is_first`: no earlier entry of this burst is withheld.
  static bool IsRaisedBy(const OnShard&, const CompletionQueue& cq, bool solicited, bool is_first);
  static constexpr uint64_t kNever = ~uint64_t{0};
  // When the next event that moderation holds back, or the next stalled queue, is due; nanoseconds,
  // as `now_ns`.
  uint64_t next_deadline(const OnShard&) const { return next_deadline_; }
  // Sends events that moderation held back and that are due now, at most kRetriesPerCall. Stalled
  // queues that are due go on with the next Flush.
  void Expire(const OnShard&, uint64_t now_ns);
  // Tries again to write events for which the socket had no room, asynchronous ones too.
  void Retry(const OnShard& shard);
  // Adds, after MakeRoom, or removes a context of this lcore, with its waiting asynchronous events.
  void Register(const OnShard&, AsyncEvents& events);
  void Unregister(const OnShard&, AsyncEvents& events);
  // `events` has its first event that waits for room.
  void AwaitRoom(const OnShard&, AsyncEvents& events);
  // Sends an event of `cq` again, which the program's plugin has received and returned.
  void Return(const OnShard&, CompletionQueue& cq);

  // Queues that have overflowed and whose queue pairs must go to ERR. The lcore walks over the
  // queue pairs of their context in slices, and counts them in CompletionQueue::walked().
  void NoteOverflow(const OnShard&, CompletionQueue& cq) { overflowed_.push_back(&cq); }
  bool has_overflowed(const OnShard&) const { return !overflowed_.empty(); }
  CompletionQueue& overflowed(const OnShard&) { return *overflowed_.back(); }
  void DoneOverflowed(const OnShard&) { overflowed_.pop_back(); }

  Counter sent;
  Counter delayed;
  Counter slow;  // events of both kinds whose writing took long here
  Counter lost;  // asynchronous events: the backlog was full, or the program has closed its end

 private:
  void MakeRoomForQueues(size_t queues);
  void CountDelayed();
  void PublishWithheld();
  static void Claim(CompletionQueue& cq);
  static bool IsWanted(const CompletionQueue& cq, bool solicited = false);
  void SendClaimed(CompletionQueue& cq);
  void Consider(CompletionQueue& cq, uint64_t now_ns);
  void HoldBack(CompletionQueue& cq, uint64_t now_ns);
  void LetGo(CompletionQueue& cq);
  void EndStalls(uint64_t now_ns);
  void Send(CompletionQueue& cq);
  size_t queues_ = 0;
  std::vector<CompletionQueue*> held_;
  std::vector<CompletionQueue*> stalled_;
  uint64_t next_deadline_ = kNever;  // never later than the earliest of `held_` and `stalled_`
  std::vector<CompletionQueue*> touched_;
  std::vector<CompletionQueue*> withheld_;  // with an entry that is not in the ring yet
  static constexpr size_t kRetriesPerCall = 16;
  std::vector<CompletionQueue*> delayed_;
  std::vector<AsyncEvents*> waiting_;
  size_t contexts_ = 0;
  size_t delayed_count_ = 0;  // elements of delayed_ and waiting_
  std::vector<CompletionQueue*> overflowed_;
};

}  // namespace roci::dataplane
