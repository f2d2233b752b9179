// The effects of calls into the core that the host of a queue pair collects for the shard, beside
// roce::QpUpkeep: events, failed copies, a durable flush.
#pragma once

#include <bit>
#include <cstdint>

#include "memory/key_table.h"
#include "roce/work.h"

namespace roci::dataplane {

// A flush to persistent memory that has been granted and is to be started. The shard has one, which
// a host fills and the shard empties before the next queue pair's turn.
struct DurableRequest {
  const void* charged_to = nullptr;  // stands for the program whose share of the threads it takes
  memory::DurableRange range;
};

// Of one queue pair, since the shard last took them. Cleared when the shard takes them.
class HostEffects {
 public:
  bool any() const { return std::bit_cast<uint32_t>(*this) != 0; }

  void AddEvent(roce::QpEvent event) {
    static_assert(static_cast<uint32_t>(roce::QpEvent::kLastWqeReached) < 8);
    events_ |= static_cast<uint8_t>(1u << static_cast<uint32_t>(event));
  }
  bool has_events() const { return events_ != 0; }
  // In the order of QpEvent, which is the order in which a queue pair raises them.
  template <class Visit>
  void ForEachEvent(Visit&& visit) const {
    for (uint32_t left = events_; left != 0; left &= left - 1) {
      visit(static_cast<roce::QpEvent>(std::countr_zero(left)));
    }
  }

  // Copies from or to program memory that failed.
  void AddMemoryFault() { ++memory_faults_; }
  uint16_t memory_faults() const { return memory_faults_; }

  // ShardView::durable is of this queue pair.
  void AddDurable() { has_durable_ = true; }
  bool has_durable() const { return has_durable_; }

 private:
  uint8_t events_ = 0;  // bit i: QpEvent i
  bool has_durable_ = false;
  uint16_t memory_faults_ = 0;
};
static_assert(sizeof(HostEffects) == sizeof(uint32_t));

}  // namespace roci::dataplane
