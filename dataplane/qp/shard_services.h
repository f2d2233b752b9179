// What queue pairs and completion queues use of the shard that serves them. They know these parts
// of it alone.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/key_table.h"
#include "roce/work.h"

namespace roci::dataplane {

class AppCopies;
class CompletionEvents;
class Counter;
class QueuePair;

class DurableService {
 public:
  // Begins to bring a range to where a power failure does not reach it; charged to `payer`, which
  // is a name. Qp::NoteDurable tells the queue pair of the end, or, after kBusy, of room.
  virtual roce::DurableState StartDurable(QueuePair& qp, const void* payer,
                                          memory::DurableRange& range) = 0;

 protected:
  ~DurableService() = default;
};

// Pointers may be taken by the control thread; what they point to is used on the shard.
struct ShardServices {
  const uint64_t* now_ns = nullptr;  // time of the burst
  CompletionEvents* events = nullptr;
  std::vector<AppCopies*>* collecting = nullptr;  // that have something to copy
  DurableService* durable = nullptr;
  Counter* memory_faults = nullptr;  // copies from or to app memory that failed
  Counter* async_events = nullptr;   // sent
};

}  // namespace roci::dataplane
