// The part of an open verbs context (a program's ibv_context) that its lcore uses: doorbell page,
// keys, copies, events. Owns the context's queue pairs, completion queues and shared receive
// queues.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "dataplane/base/on_shard.h"
#include "dataplane/base/owned_set.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/qp/address_handles.h"
#include "dataplane/qp/app_copies.h"
#include "dataplane/qp/async_events.h"
#include "dataplane/rings/doorbells.h"
#include "dataplane/rings/list_memory.h"
#include "memory/key_table.h"

namespace roci::dataplane {

class CompletionEvents;
class CompletionQueue;
class QueuePair;
class SharedReceiveQueue;
struct TurnShare;

// On the shard, except where noted.
class VerbsContext {
 public:
  // ---- Control thread, while the context is on no lcore
  VerbsContext(std::shared_ptr<EventSocket> async_socket, std::shared_ptr<memory::KeyTable> keys,
               std::shared_ptr<AppCopies> copies, uint32_t max_address_handles,
               std::shared_ptr<memory::RetiredUse> retired_rings);
  ~VerbsContext();
  // `page` outlives the context. `wake_fd`: the program writes to it to wake the lcore.
  void UseDoorbells(roci_abi_doorbells* page, int wake_fd) {
    doorbells_ = Doorbells(page);
    wake_fd_ = wake_fd;
  }
  // `events`: those of the lcore that the context is about to join.
  void UseEvents(CompletionEvents& events);
  // Both contexts use the keys of `other` from now on. This context has no queues yet.
  void ShareKeysOf(const VerbsContext& other) {
    keys_ = other.keys_;
    copies_ = other.copies_;
  }
  int wake_fd() const { return wake_fd_; }
  // Stands for the user of the program; contexts of one user have the same.
  void SetUser(std::shared_ptr<const void> user) { user_ = std::move(user); }
  const void* user() const { return user_.get(); }
  // Contexts of one process have the same number; 0: of a process of its own.
  void SetProgram(uint64_t number) { program_ = number; }
  uint64_t program() const { return program_; }
  // For the memory of its queues (SharedMemory::Create).
  const std::shared_ptr<memory::RetiredUse>& retired_rings() const { return retired_rings_; }

  // ---- Control thread, and functions that it runs on the lcore. The lcore finds these queues
  // through its queue pairs only.
  OwnedSet<CompletionQueue>& completion_queues() { return completion_queues_; }
  OwnedSet<SharedReceiveQueue>& shared_queues() { return shared_queues_; }

  // ---- What its queues use
  // Sends an event to the program. False: the event is lost (see AsyncEvents).
  bool SendAsyncEvent(const OnShard& shard, uint64_t element, uint32_t type);
  memory::KeyTable& keys(const OnShard&) const { return *keys_; }
  // For queues to keep, which use it on the lcore.
  memory::KeyTable* keys_address() const { return keys_.get(); }
  AppCopies& copies() const { return *copies_; }
  ListMemory& lists(const OnShard&) { return lists_; }
  Doorbells& doorbells(const OnShard&) { return doorbells_; }

  // ---- What the shard looks up
  QueuePair* FindQueuePair(const OnShard&, uint32_t handle) const {
    return handle < queue_pairs_.size() ? queue_pairs_[handle].get() : nullptr;
  }
  // All handles are lower. Also on the control thread, the only one that changes it.
  uint32_t handle_end() const { return static_cast<uint32_t>(queue_pairs_.size()); }
  // Serves the tag-matching receive queue whose doorbell is `handle`. False: there is none.
  bool ServeTags(const OnShard& shard, uint32_t handle, uint64_t now_ns);
  const AddressHandles& addresses(const OnShard&) const { return addresses_; }
  AsyncEvents& async_events(const OnShard&) { return async_events_; }
  // Of the lcore: the turns of its queue pairs.
  TurnShare& turn_share(const OnShard&) const { return *turn_share_; }
  void UseTurns(const OnShard&, TurnShare& share) { turn_share_ = &share; }

  // ---- Commands. What allocates comes before what would have to be undone.
  void MakeRoomFor(const OnShard&, uint32_t handle);
  // After MakeRoomFor its handle.
  void AddQueuePair(const OnShard&, std::unique_ptr<QueuePair> qp);
  // The control thread destroys what this returns.
  std::unique_ptr<QueuePair> RemoveQueuePair(const OnShard&, uint32_t handle);
  // Removes a queue pair that is destroyed with the context.
  void RetireQueuePair(const OnShard&, uint32_t handle);
  // Control thread, between two calls of RetireQueuePair.
  const std::vector<std::unique_ptr<QueuePair>>& retired_queue_pairs() const { return retired_; }
  void FreeRetired();
  // Control thread, when the lcore uses nothing of the context any more: frees at most `most` of
  // its queues and lists. False: none is left.
  bool FreeSome(size_t most);
  // The same for the regions of keys that no other context shares, while no copies are in use.
  bool FreeSomeKeys(uint32_t most) { return keys_->FreeSome(most); }
  // Whether a thread may still run the copies. The context is the only one that has them.
  bool copies_in_use() const { return copies_.use_count() > 1; }
  std::shared_ptr<AppCopies> TakeCopies() { return std::move(copies_); }
  std::shared_ptr<memory::KeyTable> TakeKeys() { return std::move(keys_); }
  // Also on the control thread, the only one that changes it.
  bool has_queue_pairs() const { return queue_pair_count_ != 0; }
  void AddTagQueue(const OnShard&, uint32_t doorbell, SharedReceiveQueue& srq) {
    tag_queues_[doorbell] = &srq;
  }
  void RemoveTagQueue(const OnShard&, uint32_t doorbell) { tag_queues_.erase(doorbell); }
  void RemoveTagQueues(const OnShard&) { tag_queues_.clear(); }
  AddressHandles& addresses(const OnShard&) { return addresses_; }
  // Shared with the other contexts that use the same keys.
  const std::shared_ptr<AppCopies>& shared_copies(const OnShard&) const { return copies_; }

 private:
  AsyncEvents async_events_;
  Doorbells doorbells_;
  std::shared_ptr<memory::KeyTable> keys_;
  std::shared_ptr<AppCopies> copies_;  // of all contexts that share `keys_`
  AddressHandles addresses_;
  ListMemory lists_;
  // Queues are destroyed before the queues that they refer to.
  OwnedSet<CompletionQueue> completion_queues_;
  OwnedSet<SharedReceiveQueue> shared_queues_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;  // by handle
  std::vector<std::unique_ptr<QueuePair>> retired_;      // has room for all
  uint32_t queue_pair_count_ = 0;
  std::unordered_map<uint32_t, SharedReceiveQueue*> tag_queues_;  // by doorbell
  CompletionEvents* completion_events_ = nullptr;
  TurnShare* turn_share_ = nullptr;
  std::shared_ptr<const void> user_;
  uint64_t program_ = 0;
  int wake_fd_ = -1;
  const std::shared_ptr<memory::RetiredUse> retired_rings_;
};

}  // namespace roci::dataplane
