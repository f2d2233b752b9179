// The parts of a shard that its queue pairs and completion queues use.
#pragma once

#include <cstdint>

#include "dataplane/base/on_shard.h"
#include "memory/key_table.h"
#include "roce/work.h"

namespace roci::dataplane {

class CompletionEvents;
class Counter;
class EarlyFrames;
class QueuePair;

class DurableService {
 public:
  // Starts an asynchronous flush of a range to persistent memory. `charged_to`: an address that
  // stands for the program whose share of the threads it takes. Qp::NoteDurable() reports
  // completion, or, after kBusy, that there is room again.
  virtual roce::DurableState StartDurable(QueuePair& qp, const void* charged_to,
                                          memory::DurableRange& range) = 0;

 protected:
  ~DurableService() = default;
};

// The control thread may copy the pointers; only the shard uses what they point to.
struct ShardServices {
  const uint64_t* now_ns = nullptr;  // time of the burst, ns
  CompletionEvents* events = nullptr;
  DurableService* durable = nullptr;
  EarlyFrames* early = nullptr;      // early packets
  Counter* memory_faults = nullptr;  // copies from or to program memory that failed
  Counter* async_events = nullptr;   // sent
  OnShardForHosts token;
};

}  // namespace roci::dataplane
