// The scheduler of what queue pairs send: they take turns by bytes, and with fairness by user the
// users take turns by bytes above them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "dataplane/qp/queue_pair.h"
#include "dataplane/shard/active_list.h"
#include "dataplane/types/fairness.h"

namespace roci::dataplane {

// Queue pairs that share turns: all of an lcore, or those of one user.
struct TurnShare {
  const void* user = nullptr;  // stands for the user; null: all users
  uint32_t contexts = 0;       // of the user
  uint32_t members = 0;        // queue pairs, in `queue_pairs` or not
  ActiveList queue_pairs;
  // Bytes charged to the share, never more than kMostOwedBytes behind the share whose turn it is:
  // that bounds the credit of a share that sends nothing.
  uint64_t charged_bytes = 0;
  bool is_listed = false;  // it waits for a turn, or has it
};

// Queue pairs of a share: deficit round robin, where a queue pair may exceed its turn by a packet
// and its next turn is shorter by as much. Shares: the one that was charged least is next.
//
// One thread. Only the functions named "commands" allocate.
class SendScheduler {
 public:
  // The payload that a queue pair may send in a turn. A small message waits for a few turns of
  // other queue pairs: with 128 KiB, an 8-byte WRITE beside READs on its own queue pair took five
  // times as long, and bandwidth was 1 % higher.
  static constexpr uint32_t kTurnBytes = 32 << 10;
  // The least that a packet, or a visit without packets, is charged: a short packet takes as much
  // time as about that many bytes of a long one.
  static constexpr uint32_t kPacketBytes = 1 << 10;
  // The most that a user may send in addition after it could not send for some time, because its
  // queue pairs waited for copies or acknowledgements.
  static constexpr uint32_t kMostOwedBytes = 64 << 10;

  explicit SendScheduler(Fairness fairness) : fairness_(fairness) {
    heap_.reserve(1);
    common_.charged_bytes = now_bytes_;
  }

  // ---- Commands
  // A verbs context of `user` comes. Every call needs a Leave.
  TurnShare& Join(const void* user);
  // It has left no queue pairs.
  void Leave(TurnShare& share);
  // The share of queue pairs without a context.
  TurnShare& common() { return common_; }
  // Makes room for one more queue pair.
  void Add(TurnShare& share) {
    share.queue_pairs.Reserve(share.members + 1);
    ++share.members;
  }
  void Remove(TurnShare& share, QueuePair& qp);

  // ---- The waiting queue pairs
  bool empty() const { return listed_ == 0; }
  uint32_t size() const { return listed_; }
  bool by_user() const { return fairness_ == Fairness::kUser; }
  // `qp` has something to send.
  void Push(TurnShare& share, QueuePair& qp) {
    if (!qp.wants_turn_) {
      qp.wants_turn_ = true;
      ++waiting_;
    }
    Enlist(share, qp);
  }
  // `qp` has nothing to send, but is visited to see whether its program has posted something.
  void PushPolled(TurnShare& share, QueuePair& qp) { Enlist(share, qp); }
  // Others than `qp` wait to send. Between two queue pairs the turns of VisitActive are enough, and
  // they are mostly the two ends of one connection: one other counts with fairness by user only.
  bool IsContended(const QueuePair& qp) const {
    return waiting_ > (qp.wants_turn_ ? 1U : 0U) + (by_user() ? 0U : 1U);
  }

  // ---- A turn. Between Begin, unless it returns null, and End, only Push and PushPolled.
  // Null where a queue pair was removed.
  QueuePair* Begin() {
    while (!heap_.empty() && heap_.front()->queue_pairs.empty())
      [[unlikely]] TakeFirst()->is_listed = false;
    if (heap_.empty()) [[unlikely]]
      return nullptr;
    current_ = TakeFirst();
    now_bytes_ = std::max(now_bytes_, current_->charged_bytes);
    QueuePair* qp = Pop(*current_);
    if (qp == nullptr) [[unlikely]]
      End(0);
    return qp;
  }
  // The bytes that `qp`, whose turn it is, may send. They include the credit of its user if no
  // queue pair of the user could send while others did: `qp` may be held again at the user's next
  // turn.
  uint32_t Budget(const QueuePair& qp) const {
    const uint64_t owed_bytes = now_bytes_ - current_->charged_bytes;
    return kTurnBytes - qp.turn_excess_bytes_ +
           static_cast<uint32_t>(std::min<uint64_t>(owed_bytes, kMostOwedBytes));
  }
  // A queue pair that the current share has further on; null: none.
  QueuePair* Peek(uint32_t ahead) const { return current_->queue_pairs.Peek(ahead); }
  // `qp` loses its turn because of copies. It is first when it is pushed again.
  static void Postpone(QueuePair& qp) { qp.keeps_turn_ = true; }
  // `bytes` over `budget` shorten the queue pair's next turn.
  static void NoteSent(QueuePair& qp, uint32_t bytes, uint32_t budget) {
    qp.turn_excess_bytes_ =
        bytes > budget ? static_cast<uint16_t>(std::min(bytes - budget, kTurnBytes / 2)) : 0;
  }
  void End(uint32_t bytes) {
    current_->charged_bytes += bytes;
    current_->is_listed = !current_->queue_pairs.empty();
    if (current_->is_listed) PutInHeap(*current_);
  }

  // Takes all queue pairs out, one by one, and calls visit(qp) for each, which may push it again.
  template <class Visit>
  void Recheck(Visit&& visit) {
    for (size_t i = 0; i < heap_.size(); ++i) {
      TurnShare& share = *heap_[i];
      for (uint32_t left = share.queue_pairs.size(); left > 0; --left) {
        if (QueuePair* qp = Pop(share)) visit(*qp);
      }
    }
  }

 private:
  static bool IsLater(const TurnShare* a, const TurnShare* b) {
    return a->charged_bytes > b->charged_bytes;
  }
  void PutInHeap(TurnShare& share) {
    heap_.push_back(&share);
    if (heap_.size() > 1) std::push_heap(heap_.begin(), heap_.end(), IsLater);
  }
  TurnShare* TakeFirst() {
    if (heap_.size() > 1) std::pop_heap(heap_.begin(), heap_.end(), IsLater);
    TurnShare* first = heap_.back();
    heap_.pop_back();
    return first;
  }
  void Enlist(TurnShare& share, QueuePair& qp) {
    const bool is_new =
        qp.keeps_turn_ ? share.queue_pairs.PushFront(qp) : share.queue_pairs.Push(qp);
    if (!is_new) return;
    qp.keeps_turn_ = false;
    ++listed_;
    if (share.is_listed) return;
    share.is_listed = true;
    share.charged_bytes = std::max(share.charged_bytes, now_bytes_ - kMostOwedBytes);
    PutInHeap(share);
  }
  QueuePair* Pop(TurnShare& share) {
    QueuePair* qp = share.queue_pairs.Pop();
    if (qp == nullptr) return nullptr;
    Unlist(*qp);
    return qp;
  }
  void Unlist(QueuePair& qp) {
    --listed_;
    if (!qp.wants_turn_) return;
    qp.wants_turn_ = false;
    --waiting_;
  }

  const Fairness fairness_;
  uint32_t listed_ = 0;   // queue pairs in the lists
  uint32_t waiting_ = 0;  // of these: have something to send
  TurnShare common_;
  std::vector<std::unique_ptr<TurnShare>> shares_;  // of users
  std::vector<TurnShare*> heap_;  // those that wait for a turn; has room for all shares
  TurnShare* current_ = nullptr;
  uint64_t now_bytes_ = kMostOwedBytes;  // charged to the share whose turn it is
};

}  // namespace roci::dataplane
