// What the control thread asks of a session's shard, and the answers. ShardClient::Do() runs each
// between two bursts.
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
// This one, DeregisterRegion, UnshareRange and DropKeys answer when no copy uses what they took
// away, or one takes long.
struct ChangeRegion {  // -> MemoryStatus
  uint32_t key;
  memory::RegionChange change;
};
struct DeregisterRegion {  // -> MemoryStatus
  uint32_t key;
};
// The range of `app` is reached through process_vm from now on.
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
// Takes keys of a program that leaves others behind. Windows and lists go by number, regions by
// key. Few at a time: other programs on the shard wait meanwhile.
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
  uint32_t posted = 0;  // entries that nobody has taken
  uint32_t taken = 0;
  uint32_t limit = 0;
  bool broken = false;
  size_t tags = 0;  // buffers in its list
};
struct InspectReceiveQueue {  // -> ReceiveQueueState
  SharedReceiveQueue& srq;
};
struct InspectQueuePairs {  // -> std::vector<QueuePairInfo>, in that order
  std::span<QueuePair* const> queue_pairs;
};
// The session's program hears of it, or, where its pipe is full, does not: AsyncEvents.
struct RaiseEvent {
  uint64_t element;
  uint32_t type;
};

}  // namespace roci::dataplane
