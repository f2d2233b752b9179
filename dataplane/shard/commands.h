// Commands of the control thread to a shard about one verbs context, and the answers.
// ShardClient::Do() runs a command between two bursts and returns the answer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/key_table.h"
#include "memory/t10_dif.h"
#include "memory/types.h"

namespace roci::dataplane {

class QueuePair;
class SharedReceiveQueue;

// ---- Keys. Statuses are those of memory::KeyTable's functions.

struct Registered {
  memory::MemoryStatus status{};
  uint32_t key = 0;  // where the status is kOk
};
struct RegisterRegion {  // -> Registered
  uint32_t pd;
  memory::Access access;
  memory::Translation translation;
};
struct RegisterNull {  // -> Registered
  uint32_t pd;
};
struct AllocateWindow {  // -> Registered
  uint32_t pd;
  memory::WindowType type;
};
struct DeallocateWindow {  // -> MemoryStatus
  uint32_t window;
};
// ChangeRegion, DeregisterRegion, UnshareRange and DropKeys answer when no copy uses the released
// mappings any more, or when a copy takes long. So does DeallocateWindow: copies through the window
// may be pending.
struct ChangeRegion {  // -> MemoryStatus
  uint32_t key;
  memory::RegionChange change;
};
struct DeregisterRegion {  // -> MemoryStatus
  uint32_t key;
};
// From now on the range of `app` is accessed by system calls (process_vm_readv and
// process_vm_writev, or /proc/PID/mem).
struct UnshareRange {
  uint64_t va;
  uint64_t length;
  const memory::AppMemory* app;
};
struct IntegrityAnswer {
  memory::MemoryStatus status{};
  memory::IntegrityError error;
};
struct TakeIntegrityError {  // -> IntegrityAnswer
  uint32_t number;
};
// Drops keys of a program while others go on using the key table. Windows and lists are named by
// number, regions by key. At most kMost at a time, as other programs on the shard wait meanwhile.
struct DropKeys {
  enum class Kind : uint8_t { kWindows, kLists, kRegions };
  static constexpr size_t kMost = 256;
  Kind kind;
  std::span<const uint32_t> keys;  // at most kMost
};
struct ListRegions {};  // -> std::vector<memory::RegionInfo>

// ---- Queues and events

struct SetReceiveLimit {
  SharedReceiveQueue& srq;
  uint32_t limit;
};
struct QueryReceiveLimit {  // -> uint32_t
  SharedReceiveQueue& srq;
};
struct ReceiveQueueState {
  uint32_t posted = 0;  // WQEs that no queue pair has taken
  uint32_t taken = 0;
  uint32_t limit = 0;
  bool broken = false;
  size_t tags = 0;  // tagged buffers in its list
};
struct InspectReceiveQueue {  // -> ReceiveQueueState
  SharedReceiveQueue& srq;
};
struct InspectQueuePairs {  // -> std::vector<QueuePairInfo>, in the same order
  std::span<QueuePair* const> queue_pairs;
};
// Sends an asynchronous event to the program. It may be lost: see AsyncEvents.
struct RaiseEvent {
  uint64_t element;
  uint32_t type;
};

}  // namespace roci::dataplane
