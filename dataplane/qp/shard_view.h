// What queue pairs and completion queues see of their shard.
#pragma once

#include <cstdint>

#include "dataplane/base/on_shard.h"

namespace roci::dataplane {

class CompletionEvents;
class EarlyFrames;
struct DurableRequest;

// The control thread may copy the pointers; only the shard uses what they point to.
struct ShardView {
  const uint64_t* now_ns = nullptr;  // time of the burst, ns
  CompletionEvents* events = nullptr;
  EarlyFrames* early = nullptr;       // early packets
  DurableRequest* durable = nullptr;  // see HostEffects::AddDurable
  OnShardForHosts token;
};

}  // namespace roci::dataplane
