// Commands about events.
#include "dataplane/qp/completion_queue.h"
#include "dataplane/shard/shard_client_inl.h"
#include "dataplane/shard/worker.h"

namespace roci::dataplane {

bool ShardClient::Do(const RaiseEvent& command) {
  return lcore_->Call([&](const OnShard& shard) {
    return context_->SendAsyncEvent(shard, command.element, command.type);
  });
}

uint32_t ShardClient::Do(const WithdrawAsyncEvents& command) {
  return lcore_->Call([&](const OnShard& shard) {
    return context_->async_events(shard).Withdraw(shard, command.element);
  });
}

void ShardClient::Do(const ReturnAsyncEvents& command) {
  lcore_->Call([&](const OnShard& shard) {
    AsyncEvents& async = context_->async_events(shard);
    CompletionEvents& events = lcore_->worker(shard).events();
    events.lost.Add(async.Return(shard, command.events, command.hold));
    if (async.waiting(shard)) events.AwaitRoom(shard, async);
  });
}

void ShardClient::Do(const ReturnCompletionEvents& command) {
  lcore_->Call([&](const OnShard& shard) {
    for (CompletionQueue* cq : command.queues) lcore_->worker(shard).events().Return(shard, *cq);
  });
}

}  // namespace roci::dataplane
