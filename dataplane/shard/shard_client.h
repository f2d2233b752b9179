// The control thread's side of one verbs context on a shard: sends commands to the shard. The
// shard's side is VerbsContext, which owns the queues.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/shard/commands.h"
#include "dataplane/types/copy_use.h"
#include "memory/app_memory.h"
#include "memory/key_table.h"
#include "verbs_provider/abi/rings.h"

namespace roci::dataplane {

class ContextRemoval;
class DeviceClient;
class PendingReleases;
class ShardedDevice;
class Lcore;
class OnShard;
class VerbsContext;

struct ShardClientConfig {
  std::shared_ptr<const memory::AppMemory> app;
  // Shared by all contexts of a user.
  std::shared_ptr<CopyUse> copy_use = std::make_shared<CopyUse>();
  std::shared_ptr<memory::RetiredUse> retired_rings = {};  // see SharedMemory; null: of no user
  uint32_t max_keys = 65536;
  uint64_t key_seed = 0;                               // see memory::KeyTable
  uint32_t max_queue_pairs = ROCI_ABI_MAX_QP_HANDLES;  // at most that
  uint32_t max_address_handles = 65536;
  std::shared_ptr<EventSocket> async_socket;
  uint64_t program = 0;  // see VerbsContext
};

// Control thread only. Pointers to the context's objects are valid until the objects are destroyed.
//
// A queue pair that is destroyed, or whose client is, has 1 ms (or 16 visits, if the lcore gets no
// processor) to send what was posted to it: an adapter has fetched WQEs within a microsecond of the
// doorbell.
class ShardClient {
 public:
  static absl::StatusOr<std::unique_ptr<ShardClient>> Create(DeviceClient& device,
                                                             uint32_t lcore_index,
                                                             ShardClientConfig config);
  // Removes all remaining objects from the lcore and frees them.
  ~ShardClient();
  // Incremental destruction: removes or frees some objects. False: none is left. No commands after
  // it.
  bool RemoveSome();

  // Whether the program's queue pairs stand still because a copy to or from its memory takes long.
  bool IsStalled() const;
  // Whether copies from before this context's last change or removal of an object are still
  // running: they may access the program's memory, also for objects that are reset or gone.
  bool HasUnfinishedCopies() const;
  // Blocks until all copies that have started are finished, or one takes long (IsStalled). Keeps
  // `mappings`, which the copies may use, until they are finished.
  void AwaitCopies(memory::ReleasedMappings mappings);

  uint32_t lcore_index() const;
  // Moves the context and its objects to another lcore. It has no XRC queue pairs. False: not
  // possible, because it has other queue pairs or shared receive queues, or shares its keys, or no
  // thread can be started.
  bool MoveTo(uint32_t lcore_index);
  // Makes this context, which must have no objects, use the keys and the lcore of `other`. The key
  // table is destroyed with the last of its contexts.
  void ShareKeysOf(ShardClient& other);

  // Descriptors for the HELLO response. They stay open and belong to the client.
  int doorbell_fd() const { return doorbell_memory_.fd(); }
  int wake_fd() const { return wake_.get(); }
  size_t doorbell_bytes() const { return doorbell_memory_.size(); }
  // Shows the program roci_abi_doorbells::paths.
  void ShowPaths(uint32_t paths);

  // ---- Commands to the shard. What they create belongs to the context until it is destroyed.
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
  absl::StatusOr<CreatedList> Do(const CreateList& command);
  void Do(const DestroyList& command);
  absl::StatusOr<CreatedCompletionQueue> Do(const CreateCompletionQueue& command);
  absl::StatusOr<CompletionQueueMove> Do(const ResizeCompletionQueue& command);
  absl::StatusOr<bool> Do(const ContinueMove& command);
  void Do(const ModerateCompletionQueue& command);
  CompletionQueueInfo Do(const InspectCompletionQueue& command);
  absl::StatusOr<EventCounts> Do(const DestroyCompletionQueue& command);
  absl::StatusOr<CreatedSharedReceiveQueue> Do(const CreateSharedReceiveQueue& command);
  absl::StatusOr<SharedReceiveQueueGrowth> Do(const GrowSharedReceiveQueue& command);
  absl::StatusOr<bool> Do(const ContinueGrowth& command);
  absl::StatusOr<EventCounts> Do(const DestroySharedReceiveQueue& command);
  void Do(const SetReceiveLimit& command);
  uint32_t Do(const QueryReceiveLimit& command);
  ReceiveQueueState Do(const InspectReceiveQueue& command);
  absl::StatusOr<CreatedQueuePair> Do(const CreateQueuePair& command);
  EventCounts Do(const DestroyQueuePair& command);
  ModifiedQueuePair Do(const ModifyQueuePair& command);
  void Do(const SetPath& command);
  roce::QpAttributes Do(const QueryQueuePair& command);
  std::vector<QueuePairInfo> Do(const InspectQueuePairs& command);
  absl::StatusOr<uint32_t> Do(const CreateAddressHandle& command);
  absl::Status Do(const DestroyAddressHandle& command);
  uint32_t Do(const WithdrawAsyncEvents& command);
  void Do(const ReturnAsyncEvents& command);
  void Do(const ReturnCompletionEvents& command);
  bool Do(const RaiseEvent& command);
  uint32_t Do(const RaiseQueuePairEvent& command);
  bool Do(const RaiseReceiveQueueEvent& command);
  bool Do(const BreakCompletionQueue& command);
  bool Do(const BreakReceiveQueue& command);

  // The doorbell for list operations of a queue with tag matching.
  static uint32_t TagDoorbell(uint32_t srq_handle) { return ROCI_ABI_MAX_QP_HANDLES - srq_handle; }
  // Handles of queue pairs are lower.
  uint32_t queue_pair_handles() const { return max_queue_pairs_; }
  // The last handle of a shared receive queue whose doorbell cannot be a queue pair's.
  uint32_t last_srq_handle() const { return ROCI_ABI_MAX_QP_HANDLES - max_queue_pairs_; }

 private:
  friend class ShardAccess;
  ShardClient(DeviceClient& device, Lcore& lcore, ShardClientConfig config);
  template <class F>
  auto CallBetweenCopies(F&& f) -> std::invoke_result_t<F&, const OnShard&>;
  template <class F>
  void ForEachCompletionQueue(F&& f);
  absl::Status OpenDoorbells();
  void SendPosted(uint32_t first, uint32_t end);
  void FreeRetired();

  DeviceClient& device_;
  ShardedDevice& sharded_device_;
  Lcore* lcore_;
  PendingReleases& releases_;
  SharedMemory doorbell_memory_;
  Fd wake_;
  std::shared_ptr<const memory::AppMemory> app_;
  std::unique_ptr<VerbsContext> context_;
  uint64_t settled_at_end_ = 0;  // AppCopies::settled() when no copies are unfinished
  bool attached_ = false;
  enum class Stage : uint8_t { kServing, kRemoving, kFreeing };
  Stage stage_ = Stage::kServing;
  std::unique_ptr<ContextRemoval> removal_;
  uint32_t max_queue_pairs_;
};

}  // namespace roci::dataplane
