// Frames that are held until they are due: the earliest first, equal times in order of arrival.
#pragma once

#include <cstdint>
#include <vector>

struct rte_mbuf;

namespace roci::dataplane {

// On the shard.
class DelayQueue {
 public:
  static constexpr uint32_t kCapacity = 2048;
  static constexpr uint64_t kNever = UINT64_MAX;

  explicit DelayQueue(uint32_t capacity = kCapacity) : capacity_(capacity) {
    heap_.reserve(capacity);
  }
  ~DelayQueue();
  DelayQueue(const DelayQueue&) = delete;
  DelayQueue& operator=(const DelayQueue&) = delete;

  // Takes ownership of the frame. False: no room; the caller keeps the frame.
  bool Push(rte_mbuf* frame, uint8_t to, uint64_t due_ns);
  // The next frame that is due, or null.
  rte_mbuf* Pop(uint64_t now_ns, uint8_t* to);
  uint64_t next_due() const { return heap_.empty() ? kNever : heap_.front().due_ns; }
  bool empty() const { return heap_.empty(); }
  bool HasRoom() const { return heap_.size() != capacity_; }

 private:
  struct Held {
    uint64_t due_ns;
    uint64_t serial;
    rte_mbuf* frame;
    uint8_t to;
  };
  static bool Later(const Held& a, const Held& b) {
    return a.due_ns != b.due_ns ? a.due_ns > b.due_ns : a.serial > b.serial;
  }

  const uint32_t capacity_;
  uint64_t serial_ = 0;
  std::vector<Held> heap_;
};

}  // namespace roci::dataplane
