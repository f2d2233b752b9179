#include "dataplane/qp/verbs_context.h"

#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/shared_receive_queue.h"

namespace roci::dataplane {

bool VerbsContext::SendAsyncEvent(uint64_t element, uint32_t type) {
  const bool waited = async_events_.waiting();
  const bool sent = async_events_.Send(element, type);
  if (!sent) completion_events_->lost.Add(1);
  if (!waited && async_events_.waiting()) completion_events_->AwaitRoom(async_events_);
  return sent;
}

bool VerbsContext::ServeTags(uint32_t handle, uint64_t now_ns) {
  const auto found = tag_queues_.find(handle);
  if (found == tag_queues_.end()) return false;
  TagQueue& tags = *found->second->tags();
  if (!tags.Serve(now_ns)) found->second->Fail();
  if (tags.has_more()) doorbells_.Ring(handle);
  return true;
}

}  // namespace roci::dataplane
