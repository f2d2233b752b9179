// The queue pairs that an lcore visits in turn.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "dataplane/qp/queue_pair.h"

namespace roci::dataplane {

// A ring of pointers, each queue pair in it at most once; its position is in
// QueuePair::active_position_. One thread. Storage grows in Reserve only.
class ActiveList {
 public:
  ActiveList() : ring_(kFirstCapacity) {}

  // Room for `queue_pairs`.
  void Reserve(uint32_t queue_pairs) {
    if (queue_pairs <= ring_.size()) return;
    std::vector<QueuePair*> bigger(std::bit_ceil(queue_pairs));
    uint32_t kept = 0;
    while (!empty()) {
      if (QueuePair* qp = Pop()) {
        qp->active_position_ = kept;
        bigger[kept++] = qp;
      }
    }
    ring_.swap(bigger);
    head_ = 0;
    tail_ = kept;
  }

  bool empty() const { return head_ == tail_; }
  // Places in use, including those of removed queue pairs.
  uint32_t size() const { return tail_ - head_; }

  // False: it was in the list.
  bool Push(QueuePair& qp) {
    if (!MakeRoomFor(qp)) return false;
    qp.active_position_ = tail_ & Mask();
    ring_[tail_++ & Mask()] = &qp;
    return true;
  }
  bool PushFront(QueuePair& qp) {
    if (!MakeRoomFor(qp)) return false;
    qp.active_position_ = --head_ & Mask();
    ring_[head_ & Mask()] = &qp;
    return true;
  }
  // Null where a queue pair was removed.
  QueuePair* Pop() {
    QueuePair* qp = ring_[head_++ & Mask()];
    if (qp != nullptr) qp->active_position_ = QueuePair::kNotActive;
    return qp;
  }
  // The element that Pop returns after `ahead` other calls; null if there is none.
  QueuePair* Peek(uint32_t ahead) const {
    return ahead < size() ? ring_[(head_ + ahead) & Mask()] : nullptr;
  }
  // False: it was not in the list.
  bool Remove(QueuePair& qp) {
    if (qp.active_position_ == QueuePair::kNotActive) return false;
    ring_[qp.active_position_] = nullptr;
    qp.active_position_ = QueuePair::kNotActive;
    return true;
  }

 private:
  static constexpr size_t kFirstCapacity = 64;  // a power of two

  uint32_t Mask() const { return static_cast<uint32_t>(ring_.size()) - 1; }
  // False: it is in the list.
  bool MakeRoomFor(const QueuePair& qp) {
    if (qp.active_position_ != QueuePair::kNotActive) return false;
    if (size() == ring_.size()) [[unlikely]]
      Compact();
    return true;
  }
  // Removes the empty places. There are some: the ring holds every queue pair at most once and is
  // large enough for all.
  void Compact() {
    uint32_t to = head_;
    for (uint32_t from = head_; from != tail_; ++from) {
      QueuePair* qp = ring_[from & Mask()];
      if (qp == nullptr) continue;
      qp->active_position_ = to & Mask();
      ring_[to++ & Mask()] = qp;
    }
    tail_ = to;
  }

  std::vector<QueuePair*> ring_;
  uint32_t head_ = 0;
  uint32_t tail_ = 0;
};

}  // namespace roci::dataplane
