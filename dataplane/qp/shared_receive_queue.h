// A shared receive queue: any queue pair of a context takes WQEs in the order of posting; they
// complete in any order. Gate 2 for its ring, as work_queue.h is for the other queues.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/base/on_shard.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/qp/tag_queue.h"
#include "dataplane/types/shared_receive_queue_config.h"
#include "dataplane/types/shared_receive_queue_growth.h"
#include "roce/work.h"
#include "verbs_provider/abi/session.h"

namespace roci::dataplane {

class CompletionQueue;
class VerbsContext;
class XrcTargets;

class SharedReceiveQueue {
 public:
  // By ShardClient, on the control thread. `number` is 0 where there is no domain.
  static absl::StatusOr<std::unique_ptr<SharedReceiveQueue>> Create(
      VerbsContext& context, const SharedReceiveQueueConfig& config, uint32_t handle,
      uint32_t number);

  // ---- Any thread
  VerbsContext& context() const { return context_; }
  XrcTargets* domain() const { return domain_; }
  CompletionQueue* cq() const { return cq_; }
  TagQueue* tags() const { return tags_.get(); }  // null without tag matching
  uint32_t pd() const { return pd_; }
  uint32_t handle() const { return handle_; }
  uint32_t number() const { return number_; }
  uint32_t async_events() const { return async_events_.load(std::memory_order_relaxed); }

  // ---- Control thread
  Fd TakeFd() { return memory_.TakeFd(); }
  const roci_abi_srq_layout& layout() const { return layout_; }
  uint32_t ref_count() const { return ref_count_; }  // of queue pairs
  void AddReference() { ++ref_count_; }
  void RemoveReference() { --ref_count_; }
  // Before Grow: copies at most `most` bytes of the slots. True: there are more. The lcore goes on;
  // the program does not change slots during MODIFY_SRQ. (If it does, its WQEs are garbled.)
  bool CopySlots(SharedReceiveQueueGrowth& growth, size_t most) const;

  // ---- On the shard
  // Takes the oldest WQE. kBad: as WorkQueue. A ring with impossible contents makes the queue
  // broken: it raises one event and gives no more WQEs.
  roce::FetchResult Fetch(const OnShard& shard, roce::RecvWqe& out,
                          roce::CompletionStatus& bad_status);
  // SGE `i` < wqe.num_sge as it is in the slot now; the program may have changed it.
  roce::Sge ReadSge(const OnShard&, const roce::RecvWqe& wqe, uint32_t i) const;
  // Returns a WQE that was taken and will not complete. It is the next to be taken.
  void GiveBack(const OnShard&, const roce::RecvWqe& wqe) { returned_.push_back(wqe.slot); }
  bool broken(const OnShard&) const { return broken_; }
  // IBTA vol 1, 11.6.3.5: the queue is broken, and a queue pair that needs it fails.
  void Fail(const OnShard& shard);
  // `type`: of enum ibv_event_type. False: the event is lost.
  bool RaiseEvent(const OnShard& shard, uint32_t type);
  // Raises one event when fewer than `limit` WQEs are left; then the limit is 0 (none).
  void SetLimit(const OnShard&, uint32_t limit) { limit_ = limit; }
  uint32_t limit(const OnShard&) const { return limit_; }
  uint32_t taken(const OnShard&) const { return next_; }
  // WQEs that no queue pair has taken.
  uint32_t posted(const OnShard& shard) { return CountPosted(shard); }
  // Continues in the new memory, which has at least as many slots. False: the program's index is
  // impossible.
  bool Grow(const OnShard& shard, SharedReceiveQueueGrowth& growth);

 private:
  SharedReceiveQueue(VerbsContext& context, const SharedReceiveQueueConfig& config, uint32_t handle,
                     uint32_t number, const roci_abi_srq_layout& layout, SharedMemory memory,
                     std::unique_ptr<TagQueue> tags);
  void UseMemory();
  bool Refresh(const OnShard& shard);
  bool TakeSlot(const OnShard& shard, uint32_t& slot);
  uint32_t CountPosted(const OnShard& shard);
  void CheckLimit(const OnShard& shard);
  std::byte* Slot(uint32_t slot) const { return slots_ + size_t{slot} * stride_; }

  roci_abi_srq* header_ = nullptr;
  const uint32_t* ring_ = nullptr;
  std::byte* slots_ = nullptr;
  uint32_t ring_mask_ = 0;
  uint32_t slot_count_ = 0;
  uint32_t stride_ = 0;
  uint32_t next_ = 0;  // index of the next entry to take
  uint32_t seen_ = 0;  // producer index as last read
  uint32_t limit_;
  uint8_t max_sge_;
  bool broken_ = false;
  std::vector<uint32_t> returned_;
  uint32_t pd_;
  uint32_t handle_;
  uint32_t number_;
  VerbsContext& context_;
  XrcTargets* domain_;
  CompletionQueue* cq_;
  std::unique_ptr<TagQueue> tags_;
  uint64_t user_handle_;
  std::atomic<uint32_t> async_events_{0};
  uint32_t ref_count_ = 0;
  roci_abi_srq_layout layout_;
  SharedMemory memory_;
};

}  // namespace roci::dataplane
