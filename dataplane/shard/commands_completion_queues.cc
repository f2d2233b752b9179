// Commands about completion queues.
#include <optional>
#include <utility>

#include "dataplane/base/clock.h"
#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/queue_layouts.h"
#include "dataplane/qp/shard_view.h"
#include "dataplane/shard/shard_client_inl.h"
#include "dataplane/shard/worker.h"

namespace roci::dataplane {

absl::StatusOr<CreatedCompletionQueue> ShardClient::Do(const CreateCompletionQueue& command) {
  CompletionEvents& events = *lcore_->view().events;
  context_->completion_queues().MakeRoom();
  auto cq = CompletionQueue::Create(*context_, events, command.entries, command.user_handle,
                                    command.channel);
  if (!cq.ok()) return cq.status();
  if (command.ignores_overrun) (*cq)->IgnoreOverrun();
  lcore_->Call([&](const OnShard& shard) { events.Register(shard); });
  CompletionQueue& created = context_->completion_queues().Add(*std::move(cq));
  return CreatedCompletionQueue{&created, created.TakeFd()};
}

absl::StatusOr<CompletionQueueMove> ShardClient::Do(const ResizeCompletionQueue& command) {
  absl::StatusOr<SharedMemory> ring =
      CompletionQueue::CreateRing(command.entries, context_->retired_rings());
  if (!ring.ok()) return ring.status();
  Fd fd = ring->TakeFd();
  // Entries posted before the request count, so the lcore runs a whole round first.
  const uint32_t capacity = CompletionCapacity(command.entries);
  if (capacity < command.completion_queue.capacity()) lcore_->FinishRound();
  return CompletionQueueMove{.ring = *std::move(ring),
                             .fd = std::move(fd),
                             .capacity = capacity,
                             .consumer = command.consumer,
                             .copied = 0,
                             .visible = 0};
}

// The last part comes: no more entries than the old ring has can come meanwhile.
absl::StatusOr<bool> ShardClient::Do(const ContinueMove& command) {
  CompletionQueue& cq = command.completion_queue;
  CompletionQueueMove& move = command.move;
  if (move.copied < move.visible) {
    cq.CopyEntries(move, ContinueMove::kMostInPart);
    return true;
  }
  switch (CallBetweenCopies([&](const OnShard& shard) { return cq.SwapRing(shard, move); })) {
    case CompletionQueue::MoveResult::kMoved:
      return false;
    case CompletionQueue::MoveResult::kCopyFirst:
      return true;
    case CompletionQueue::MoveResult::kDoesNotFit:
      break;
  }
  return absl::InvalidArgumentError("completion queue: does not fit the new size");
}

CompletionQueueInfo ShardClient::Do(const InspectCompletionQueue& command) {
  const CompletionQueue& cq = command.completion_queue;
  return {.capacity = cq.capacity(),
          .entries_offset = CompletionQueue::kEntriesOffset,
          .memory_size = cq.memory_size(),
          .ref_count = cq.ref_count(),
          .comp_events = cq.comp_events(),
          .async_events = cq.async_events(),
          .overflowed = cq.overflowed()};
}

void ShardClient::Do(const ModerateCompletionQueue& command) {
  lcore_->Call([&](const OnShard& shard) {
    Worker& worker = lcore_->worker(shard);
    worker.events().Moderate(shard, command.completion_queue, command.moderation,
                             worker.RefreshTime());
  });
}

absl::StatusOr<EventCounts> ShardClient::Do(const DestroyCompletionQueue& command) {
  CompletionQueue& cq = command.completion_queue;
  if (cq.ref_count() != 0) return absl::FailedPreconditionError("completion queue: in use");
  CallBetweenCopies(
      [&](const OnShard& shard) { lcore_->worker(shard).events().Unregister(shard, cq); });
  const EventCounts counts{cq.comp_events(), cq.async_events()};
  context_->completion_queues().Take(cq);
  return counts;
}

bool ShardClient::Do(const BreakCompletionQueue& command) {
  return lcore_->Call([&](const OnShard& shard) {
    if (command.cq.overflowed()) return false;
    command.cq.Overflow(shard);
    return true;
  });
}

}  // namespace roci::dataplane
