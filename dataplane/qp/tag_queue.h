// The operations on a tag list that a program posts, and their completions. Gate 2 for them, as
// work_queue.h is for work requests.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "dataplane/base/on_shard.h"
#include "dataplane/base/shared_memory.h"
#include "dataplane/rings/tag_list.h"
#include "dataplane/types/shared_receive_queue_config.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::dataplane {

class CompletionQueue;

class TagQueue {
 public:
  // Operations complete in `cq`, as ones of the shared receive queue `handle`. `cq` outlives it.
  static absl::StatusOr<std::unique_ptr<TagQueue>> Create(const TagQueueConfig& config,
                                                          uint32_t handle, CompletionQueue& cq);

  // ---- Any thread
  const TagQueueLayout& layout() const { return layout_; }
  Fd TakeFd() { return memory_.TakeFd(); }
  uint32_t handle() const { return handle_; }

  // ---- On the shard
  static constexpr uint32_t kOpsPerCall = 64;
  // Executes up to kOpsPerCall posted operations. False: the program wrote an impossible index; no
  // operation is taken any more.
  bool Serve(const OnShard& shard, uint64_t now_ns);
  // The last call left operations, for which the program does not ring again.
  bool has_more(const OnShard&) const { return has_more_; }
  TagList& list(const OnShard&) { return list_; }
  uint32_t buffers(const OnShard&) const { return list_.size(); }  // in the list
  // A matched buffer has completed; its slot becomes free.
  void Release(const OnShard&, uint32_t slot);
  uint32_t taken(const OnShard&) const { return next_; }

 private:
  TagQueue(const TagQueueConfig& config, const TagQueueLayout& layout, uint32_t handle,
           CompletionQueue& cq, SharedMemory memory);
  void Execute(const OnShard& shard, const roci_abi_tag_op& op, uint64_t now_ns);
  bool Add(const roci_abi_tag_op& op);
  bool Delete(const roci_abi_tag_op& op);
  void PutFreed(uint32_t slot);

  roci_abi_tag_queue* header_;
  const std::byte* ops_;
  uint32_t* freed_;
  uint32_t freed_count_ = 0;
  uint32_t next_ = 0;
  uint32_t max_ops_;
  bool broken_ = false;
  bool has_more_ = false;
  uint32_t handle_;
  CompletionQueue& cq_;
  TagList list_;
  TagQueueLayout layout_;
  SharedMemory memory_;
};

}  // namespace roci::dataplane
