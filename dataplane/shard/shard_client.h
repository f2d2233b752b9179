// The control thread's side of one verbs context on a shard: sends commands to the shard, and owns
// the queues that live there. The shard's side is VerbsContext.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/qp/app_copies.h"
#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/qp/verbs_context.h"
#include "dataplane/rings/list_memory.h"
#include "dataplane/shard/commands.h"
#include "memory/app_memory.h"
#include "memory/key_table.h"

namespace roci::dataplane {

class Device;
class Lcore;

struct ShardClientConfig {
  std::shared_ptr<const memory::AppMemory> app;
  // Shared by all contexts of a user.
  std::shared_ptr<CopyUse> copy_use = std::make_shared<CopyUse>();
  uint32_t max_keys = 65536;
  uint64_t key_seed = 0;                               // see memory::KeyTable
  uint32_t max_queue_pairs = ROCI_ABI_MAX_QP_HANDLES;  // at most that
  uint32_t max_address_handles = 65536;
  // Writing end of the async event pipe, non-blocking. The context owns it.
  Fd async_pipe;
};

// A new queue pair, as in the create response. The caller passes `memory` to the app.
struct CreatedQueuePair {
  QueuePair* queue_pair;
  Fd memory;
};
struct CreatedSharedReceiveQueue {
  SharedReceiveQueue* queue;
  Fd memory;
};
struct CreatedCompletionQueue {
  CompletionQueue* completion_queue;
  Fd memory;
};
// A new list region. The caller passes its memory to the app.
struct CreatedList {
  uint32_t key;
  Fd memory;
};
struct EventCounts {
  uint32_t comp_events = 0;
  uint32_t async_events = 0;
};

// Control thread only. The client owns its objects; pointers to them are valid until the objects
// are destroyed.
class ShardClient {
 public:
  static absl::StatusOr<std::unique_ptr<ShardClient>> Create(Device& device, Lcore& lcore,
                                                             ShardClientConfig config);
  // Removes all remaining objects from the lcore, then frees them.
  ~ShardClient();

  // Whether the program's queue pairs stand still because a copy to or from its memory takes long.
  bool IsStalled() const { return context_->copies().IsStalled(); }
  // Copies that were pending while this context's last call changed or removed an object have not
  // ended: they may still access the program's memory, also for objects that are reset or gone.
  bool HasUnfinishedCopies() const { return context_->copies().settled() < settled_at_end_; }
  // Blocks until all copies that have started are finished, or one takes long (IsStalled). Keeps
  // `mappings`, which the copies may use, until they are finished.
  void AwaitCopies(memory::ReleasedMappings mappings);

  Device& device() { return device_; }
  Lcore& lcore() { return *lcore_; }
  // Moves the context and its objects to another lcore. It has no XRC queue pairs. False: not
  // possible, because it has other queue pairs or shared receive queues, or shares its keys.
  bool MoveTo(Lcore& lcore);
  // Makes this context, which must have no objects, use the keys and the lcore of `other`. The key
  // table is destroyed with the last of its contexts.
  void ShareKeysOf(ShardClient& other);

  // Descriptors for the HELLO response. They stay open and belong to the client.
  int doorbell_fd() const { return doorbell_memory_.fd(); }
  int wake_fd() const { return wake_.get(); }
  size_t doorbell_bytes() const { return doorbell_memory_.size(); }

  // ---- Commands to the shard (commands.cc)
  Registered Do(RegisterRegion command);
  Registered Do(const RegisterNull& command);
  Registered Do(const AllocateWindow& command);
  memory::MemoryStatus Do(const DeallocateWindow& command);
  memory::MemoryStatus Do(ChangeRegion command);
  memory::MemoryStatus Do(const DeregisterRegion& command);
  void Do(const UnshareRange& command);
  IntegrityAnswer Do(const TakeIntegrityError& command);
  void Do(const DropKeys& command);
  std::vector<memory::RegionInfo> Do(const ListRegions& command);
  void Do(const SetReceiveLimit& command);
  uint32_t Do(const QueryReceiveLimit& command);
  ReceiveQueueState Do(const InspectReceiveQueue& command);
  std::vector<QueuePairInfo> Do(const InspectQueuePairs& command);
  void Do(const RaiseEvent& command);

  // The shard's side of the context.
  VerbsContext& context() { return *context_; }

  // `channel` is the writing end of a completion channel's pipe (non-blocking; it must stay open as
  // long as the CQ), or -1. `entries` >= 1 is the requested number.
  absl::StatusOr<CreatedCompletionQueue> CreateCompletionQueue(uint32_t entries,
                                                               uint64_t user_handle, int channel);
  // Continues in a new ring (see RESIZE_CQ in abi/session.h). InvalidArgument: `consumer` is
  // impossible, or the new ring is too small for the unconsumed entries.
  absl::StatusOr<Fd> ResizeCompletionQueue(CompletionQueue& cq, uint32_t entries,
                                           uint32_t consumer);
  // Sets the moderation of its events.
  void ModerateCompletionQueue(CompletionQueue& cq, const EventModeration& moderation);
  // FailedPrecondition: a queue pair uses it.
  absl::StatusOr<EventCounts> DestroyCompletionQueue(CompletionQueue& cq);

  // `handle` is in its completions. ResourceExhausted: no number or memory left.
  absl::StatusOr<CreatedSharedReceiveQueue> CreateSharedReceiveQueue(
      const SharedReceiveQueueConfig& config, uint32_t handle);
  // Moves the queue to new memory with more slots and the given `layout`. InvalidArgument: the app
  // has written impossible values.
  absl::StatusOr<Fd> GrowSharedReceiveQueue(SharedReceiveQueue& srq,
                                            const roci_abi_srq_layout& layout);
  // The doorbell for list operations of a queue with tag matching.
  static uint32_t TagDoorbell(uint32_t srq_handle) { return ROCI_ABI_MAX_QP_HANDLES - srq_handle; }
  // Handles of queue pairs are lower.
  uint32_t queue_pair_handles() const { return max_queue_pairs_; }
  // The last handle of a shared receive queue whose doorbell cannot be a queue pair's.
  uint32_t last_srq_handle() const { return ROCI_ABI_MAX_QP_HANDLES - max_queue_pairs_; }
  // FailedPrecondition: a queue pair uses it. (XRC queue pairs do not count.)
  absl::StatusOr<EventCounts> DestroySharedReceiveQueue(SharedReceiveQueue& srq);

  // Creates a region that work requests register. ResourceExhausted: no key or memory left.
  absl::StatusOr<CreatedList> CreateList(uint32_t pd, const ListRoom& room);
  // `number`: the upper 24 bits of its keys.
  void DestroyList(uint32_t number);

  // Checks the limits in `config` against kQueueLimits; the granted limits are in qp.layout().
  // `handle` is free; it is the number of the queue pair's doorbell, and in its completions.
  // ResourceExhausted: no QPN or memory left.
  absl::StatusOr<CreatedQueuePair> CreateQueuePair(const QueuePairConfig& config, uint32_t handle);
  EventCounts DestroyQueuePair(QueuePair& qp);
  // `path` is the resolved address vector; needed when `mask` has kAttrAddressVector, else null.
  // The values are possible (roce::CheckAttributeValues); the transition is checked on the lcore.
  // After success, `state_after` (may be null) has the new state of the queue pair.
  roce::ModifyResult ModifyQueuePair(QueuePair& qp, const roce::QpAttributes& attributes,
                                     uint32_t mask, const roce::Path* path,
                                     roce::QpState* state_after = nullptr);
  // Changes only the path, for example after a neighbour's MAC has changed.
  void SetPath(QueuePair& qp, const roce::Path& path);
  void QueryQueuePair(QueuePair& qp, roce::QpAttributes& out);

  // Handles are small numbers and are reused. ResourceExhausted: the limit is reached; NotFound.
  absl::StatusOr<uint32_t> CreateAddressHandle(uint32_t pd, const roce::Path& path);
  absl::Status DestroyAddressHandle(uint32_t handle);

  // Hold functions are called before events are taken back from a pipe: the lcore writes no events
  // to the async pipe, or to the completion channel `channel`, until the Release function is
  // called. HoldAsyncEvents discards the events of `element` that are not in the pipe yet and
  // returns their number.
  uint32_t HoldAsyncEvents(uint64_t element);
  void ReleaseAsyncEvents();
  void HoldCompletionEvents(int channel);
  void ReleaseCompletionEvents();

 private:
  ShardClient(Device& device, Lcore& lcore, ShardClientConfig config);
  template <class F>
  auto CallBetweenCopies(F&& f) -> std::invoke_result_t<F&, const OnShard&>;
  absl::Status OpenDoorbells();

  Device& device_;
  Lcore* lcore_;
  SharedMemory doorbell_memory_;
  Fd wake_;
  std::shared_ptr<const memory::AppMemory> app_;
  std::unique_ptr<VerbsContext> context_;
  uint64_t settled_at_end_ = 0;  // AppCopies::settled() when no copies are unfinished
  bool attached_ = false;
  uint32_t max_queue_pairs_;
  std::vector<std::unique_ptr<CompletionQueue>> completion_queues_;
  std::vector<std::unique_ptr<SharedReceiveQueue>> shared_queues_;
};

}  // namespace roci::dataplane
