#include "dataplane/qp/verbs_context.h"

#include <cassert>
#include <utility>

#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/shared_receive_queue.h"

namespace roci::dataplane {

VerbsContext::VerbsContext(std::shared_ptr<EventSocket> async_socket,
                           std::shared_ptr<memory::KeyTable> keys,
                           std::shared_ptr<AppCopies> copies, uint32_t max_address_handles,
                           std::shared_ptr<memory::RetiredUse> retired_rings)
    : async_events_(std::move(async_socket)),
      keys_(std::move(keys)),
      copies_(std::move(copies)),
      addresses_(max_address_handles),
      retired_rings_(std::move(retired_rings)) {}

VerbsContext::~VerbsContext() = default;

void VerbsContext::UseEvents(CompletionEvents& events) {
  completion_events_ = &events;
  async_events_.CountSlowIn(events.slow);
}

void VerbsContext::MakeRoomFor(const OnShard&, uint32_t handle) {
  if (queue_pairs_.size() <= handle) queue_pairs_.resize(handle + 1);
  retired_.reserve(queue_pairs_.capacity());
}

void VerbsContext::AddQueuePair(const OnShard&, std::unique_ptr<QueuePair> qp) {
  std::unique_ptr<QueuePair>& place = queue_pairs_[qp->handle()];
  assert(place == nullptr);
  place = std::move(qp);
  ++queue_pair_count_;
}

std::unique_ptr<QueuePair> VerbsContext::RemoveQueuePair(const OnShard&, uint32_t handle) {
  assert(queue_pairs_[handle] != nullptr);
  --queue_pair_count_;
  return std::move(queue_pairs_[handle]);
}

void VerbsContext::RetireQueuePair(const OnShard& shard, uint32_t handle) {
  retired_.push_back(RemoveQueuePair(shard, handle));
}

void VerbsContext::FreeRetired() { retired_.clear(); }

bool VerbsContext::FreeSome(size_t most) {
  return shared_queues_.DestroySome(most) || completion_queues_.DestroySome(most) ||
         lists_.FreeSome(most);
}

bool VerbsContext::SendAsyncEvent(const OnShard& shard, uint64_t element, uint32_t type) {
  const bool waited = async_events_.waiting(shard);
  const bool sent = async_events_.Send(shard, element, type);
  if (!sent) completion_events_->lost.Add(1);
  if (!waited && async_events_.waiting(shard)) completion_events_->AwaitRoom(shard, async_events_);
  return sent;
}

bool VerbsContext::ServeTags(const OnShard& shard, uint32_t handle, uint64_t now_ns) {
  const auto found = tag_queues_.find(handle);
  if (found == tag_queues_.end()) return false;
  TagQueue& tags = *found->second->tags();
  if (!tags.Serve(shard, now_ns)) found->second->Fail(shard);
  if (tags.has_more(shard)) doorbells_.Ring(handle);
  return true;
}

}  // namespace roci::dataplane
