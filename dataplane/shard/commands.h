// Commands of the control thread to a shard about one verbs context, and the answers.
// ShardClient::Do() runs a command between two bursts and returns the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "dataplane/base/event_writer.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/types/completion_queue_info.h"
#include "dataplane/types/completion_queue_move.h"
#include "dataplane/types/list_room.h"
#include "dataplane/types/queue_pair_config.h"
#include "dataplane/types/queue_pair_info.h"
#include "dataplane/types/shared_receive_queue_config.h"
#include "dataplane/types/shared_receive_queue_growth.h"
#include "memory/key_table.h"
#include "memory/t10_dif.h"
#include "memory/types.h"
#include "roce/frame.h"
#include "roce/qp_attributes.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {

class CompletionQueue;
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
  static constexpr uint32_t kMostInRow = 256;  // slots of the key table in one loop iteration
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
// number, regions by key. At most kMost at a time, as other programs on the shard wait meanwhile;
// the windows that are bound to the regions are unbound in parts.
struct DropKeys {
  enum class Kind : uint8_t { kWindows, kLists, kRegions };
  static constexpr size_t kMost = 256;
  static constexpr uint32_t kWindowsInRow = 256;  // in one loop iteration
  Kind kind;
  std::span<const uint32_t> keys;  // at most kMost
};
struct ListRegions {                           // -> std::vector<memory::RegionInfo>
  static constexpr uint32_t kMostInRow = 256;  // slots of the key table in one loop iteration
};

// A region that work requests register.
struct CreateList {  // -> CreatedList. ResourceExhausted: no key or memory left
  uint32_t pd;
  ListRoom room;
};
struct CreatedList {
  uint32_t key;
  Fd memory;  // for the program
};
struct DestroyList {
  uint32_t number;  // the upper 24 bits of its keys
};

// ---- Completion queues

// Events that were sent for an object that is gone.
struct EventCounts {
  uint32_t comp_events = 0;
  uint32_t async_events = 0;
};
struct CreateCompletionQueue {  // -> CreatedCompletionQueue
  uint32_t entries;             // requested, 1 to kMaxCompletionEntries (types/queue_limits.h)
  uint64_t user_handle;
  std::shared_ptr<EventSocket> channel;  // of its completion channel; null: none
  bool ignores_overrun = false;          // entries that do not fit are lost, without an error
};
struct CreatedCompletionQueue {
  CompletionQueue* completion_queue;
  Fd memory;  // for the program
};
struct InspectCompletionQueue {  // -> CompletionQueueInfo
  CompletionQueue& completion_queue;
};
// Starts moving to a new ring (see RESIZE_CQ in abi/session.h); ContinueMove copies the entries.
struct ResizeCompletionQueue {  // -> CompletionQueueMove
  CompletionQueue& completion_queue;
  uint32_t entries;
  uint32_t consumer;
};
// A part of the move. The queue changes with the last part only.
struct ContinueMove {  // -> bool, true: there is more. InvalidArgument: `consumer` is impossible,
                       // or the new ring is too small for the unconsumed entries
  static constexpr uint32_t kMostInPart = 4096;  // entries, which the control thread copies
  CompletionQueue& completion_queue;
  CompletionQueueMove& move;
};
// Sets the moderation of its events.
struct ModerateCompletionQueue {
  CompletionQueue& completion_queue;
  EventModeration moderation;
};
struct DestroyCompletionQueue {  // -> EventCounts. FailedPrecondition: a queue pair uses it
  CompletionQueue& completion_queue;
};

// ---- Shared receive queues

struct CreateSharedReceiveQueue {  // -> CreatedSharedReceiveQueue. ResourceExhausted: no number,
                                   // doorbell or memory left
  const SharedReceiveQueueConfig& config;
  uint32_t handle;  // in its completions
};
struct CreatedSharedReceiveQueue {
  SharedReceiveQueue* queue;
  uint32_t number;  // 0 where there is no domain
  roci_abi_srq_layout layout;
  Fd memory;  // for the program
  // With tag matching only:
  TagQueueLayout tag_layout;
  Fd tag_memory;  // for the program
};
// Begins a move to new memory with more slots, which ContinueGrowth continues.
struct GrowSharedReceiveQueue {  // -> SharedReceiveQueueGrowth
  SharedReceiveQueue& srq;
  const roci_abi_srq_layout& layout;
};
// A part of the move. The queue changes with the last part only.
struct ContinueGrowth {  // -> bool, true: there is more. InvalidArgument: the program has written
                         // impossible values
  static constexpr size_t kMostInPart = 256 << 10;  // bytes, which the control thread copies
  SharedReceiveQueue& srq;
  SharedReceiveQueueGrowth& growth;
};
// FailedPrecondition: a queue pair uses it. (XRC queue pairs do not count.)
struct DestroySharedReceiveQueue {  // -> EventCounts
  SharedReceiveQueue& srq;
};
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
  size_t tags = 0;            // tagged buffers in its list
  uint32_t ref_count = 0;     // queue pairs
  uint32_t async_events = 0;  // sent
};
struct InspectReceiveQueue {  // -> ReceiveQueueState
  SharedReceiveQueue& srq;
};

// ---- Queue pairs

// The layout of its memory is LayOutQueues(config) (qp/queue_layouts.h).
struct CreateQueuePair {  // -> CreatedQueuePair. ResourceExhausted: no QPN or memory left
  const QueuePairConfig& config;
  // A free number < ShardClient::queue_pair_handles(): of its doorbell, and in its completions.
  uint32_t handle;
};
struct CreatedQueuePair {
  QueuePair* queue_pair;
  roce::Qpn qpn;
  Fd memory;  // for the program
};
// First sends its posted WQEs, within the time limit that ShardClient describes.
struct DestroyQueuePair {                         // -> EventCounts
  static constexpr uint32_t kWindowsInRow = 256;  // that are looked at in one loop iteration
  QueuePair& qp;
};
// The values are possible (roce::CheckAttributeValues). The transition is checked on the lcore.
struct ModifyQueuePair {  // -> ModifiedQueuePair
  QueuePair& qp;
  const roce::QpAttributes& attributes;
  uint32_t mask;
  const roce::Path* path = nullptr;  // the resolved address vector if `mask` has kAttrAddressVector
  bool use_selective_repeat = false;  // to RTR: see roce::Qp::UseSelectiveRepeat
};
struct ModifiedQueuePair {
  roce::ModifyResult result;
  roce::QpState state;  // now
};
// Changes only the path, for example after a neighbour's MAC has changed.
struct SetPath {
  QueuePair& qp;
  const roce::Path& path;
};
struct QueryQueuePair {  // -> roce::QpAttributes
  QueuePair& qp;
};
struct InspectQueuePairs {                  // -> std::vector<QueuePairInfo>, in the same order
  static constexpr size_t kMostInRow = 32;  // in one loop iteration
  std::span<QueuePair* const> queue_pairs;
};

// ---- Address handles: small numbers, which are reused

struct CreateAddressHandle {  // -> uint32_t. ResourceExhausted: the limit is reached
  uint32_t pd;
  const roce::Path& path;
};
struct DestroyAddressHandle {  // NotFound
  uint32_t handle;
};

// ---- Events

// Discards the asynchronous events of `element` that are not in the socket yet.
struct WithdrawAsyncEvents {  // -> uint32_t, their number
  uint64_t element;
};
// Events that the plugin has received and returned: see AsyncEvents and CompletionEvents.
struct ReturnAsyncEvents {
  std::span<const roci_abi_async_event> events;
  bool hold;
};
struct ReturnCompletionEvents {
  std::span<CompletionQueue* const> queues;  // one event each
};
// Sends an asynchronous event to the program. It may be lost: see AsyncEvents. `type`: of enum
// ibv_event_type.
struct RaiseEvent {  // -> bool: sent
  uint64_t element;  // not an object of the program: those count their events
  uint32_t type;
};
struct RaiseQueuePairEvent {  // -> uint32_t: the programs that get it
  QueuePair& qp;
  uint32_t type;
};
struct RaiseReceiveQueueEvent {  // -> bool: sent
  SharedReceiveQueue& srq;
  uint32_t type;
};
// Puts the queue into the overflowed state and raises IBV_EVENT_CQ_ERR.
struct BreakCompletionQueue {  // -> bool; false: it has overflowed already
  CompletionQueue& cq;
};
// Puts the queue into the broken state, as impossible contents of its ring do, and raises
// IBV_EVENT_SRQ_ERR.
struct BreakReceiveQueue {  // -> bool; false: it is broken already
  SharedReceiveQueue& srq;
};

}  // namespace roci::dataplane
