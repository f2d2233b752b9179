// Commands about shared receive queues.
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/shard/shard_client_inl.h"
#include "dataplane/shard/sharded_device.h"
#include "dataplane/shard/worker.h"
#include "dataplane/shard/xrc_targets.h"

namespace roci::dataplane {

absl::StatusOr<CreatedSharedReceiveQueue> ShardClient::Do(const CreateSharedReceiveQueue& command) {
  const SharedReceiveQueueConfig& config = command.config;
  // Doorbells of tag queues use the handles from the upper end.
  if (config.tags.max_tags != 0 && command.handle > last_srq_handle()) {
    return absl::ResourceExhaustedError("shared receive queue: no doorbell left");
  }
  roce::Qpn number;
  if (config.domain != nullptr) {
    const std::optional<roce::Qpn> free = sharded_device_.srqns().Allocate(0);
    if (!free.has_value()) return absl::ResourceExhaustedError("shared receive queue: no number");
    number = *free;
  }
  absl::Cleanup free_number = [&] {
    if (config.domain != nullptr) sharded_device_.srqns().Free(number);
  };
  context_->shared_queues().MakeRoom();
  auto created = SharedReceiveQueue::Create(*context_, config, command.handle, number.value());
  if (!created.ok()) return created.status();
  SharedReceiveQueue* srq = created->get();
  if (srq->tags() != nullptr) {
    lcore_->Call([&](const OnShard& shard) {
      context_->AddTagQueue(shard, TagDoorbell(command.handle), *srq);
    });
  }
  if (config.domain != nullptr)
    lcore_->Call([&](const OnShard& shard) { config.domain->AddQueue(shard, *srq); });
  std::move(free_number).Cancel();
  context_->shared_queues().Add(*std::move(created));
  if (srq->cq() != nullptr) srq->cq()->AddReference();
  CreatedSharedReceiveQueue answer{srq, srq->number(), srq->layout(), srq->TakeFd(), {}, {}};
  if (TagQueue* tags = srq->tags(); tags != nullptr) {
    answer.tag_layout = tags->layout();
    answer.tag_memory = tags->TakeFd();
  }
  return answer;
}

absl::StatusOr<SharedReceiveQueueGrowth> ShardClient::Do(const GrowSharedReceiveQueue& command) {
  absl::StatusOr<SharedMemory> memory =
      SharedMemory::Create("roci-srq", command.layout.memory_size, context_->retired_rings());
  if (!memory.ok()) return memory.status();
  Fd fd = memory->TakeFd();
  return SharedReceiveQueueGrowth{
      .memory = *std::move(memory), .fd = std::move(fd), .layout = command.layout, .copied = 0};
}

absl::StatusOr<bool> ShardClient::Do(const ContinueGrowth& command) {
  SharedReceiveQueue& srq = command.srq;
  if (srq.CopySlots(command.growth, ContinueGrowth::kMostInPart)) return true;
  if (lcore_->Call([&](const OnShard& shard) { return srq.Grow(shard, command.growth); })) {
    return false;
  }
  return absl::InvalidArgumentError("shared receive queue: broken");
}

absl::StatusOr<EventCounts> ShardClient::Do(const DestroySharedReceiveQueue& command) {
  SharedReceiveQueue& srq = command.srq;
  if (srq.ref_count() != 0) return absl::FailedPreconditionError("shared receive queue: in use");
  if (srq.domain() != nullptr) {
    size_t next = 0;
    const auto remove_some = [&](const OnShard& shard) {
      return srq.domain()->RemoveQueue(shard, srq, next);
    };
    while (CallBetweenCopies(remove_some)) lcore_->FinishRound();
    sharded_device_.srqns().Free(roce::Qpn(srq.number()));
  }
  if (srq.tags() != nullptr) {
    CallBetweenCopies(
        [&](const OnShard& shard) { context_->RemoveTagQueue(shard, TagDoorbell(srq.handle())); });
  }
  if (srq.cq() != nullptr) {
    lcore_->Call(
        [&](const OnShard& shard) { lcore_->worker(shard).events().EndStall(shard, *srq.cq()); });
    srq.cq()->RemoveReference();
  }
  const EventCounts counts{0, srq.async_events()};
  context_->shared_queues().Take(srq);
  return counts;
}

void ShardClient::Do(const SetReceiveLimit& command) {
  lcore_->Call([&](const OnShard& shard) { command.srq.SetLimit(shard, command.limit); });
}

uint32_t ShardClient::Do(const QueryReceiveLimit& command) {
  return lcore_->Call([&](const OnShard& shard) { return command.srq.limit(shard); });
}

ReceiveQueueState ShardClient::Do(const InspectReceiveQueue& command) {
  SharedReceiveQueue& srq = command.srq;
  return lcore_->Call([&](const OnShard& shard) {
    return ReceiveQueueState{.posted = srq.posted(shard),
                             .taken = srq.taken(shard),
                             .limit = srq.limit(shard),
                             .broken = srq.broken(shard),
                             .tags = srq.tags() != nullptr ? srq.tags()->buffers(shard) : 0,
                             .ref_count = srq.ref_count(),
                             .async_events = srq.async_events()};
  });
}

bool ShardClient::Do(const RaiseReceiveQueueEvent& command) {
  return lcore_->Call(
      [&](const OnShard& shard) { return command.srq.RaiseEvent(shard, command.type); });
}

bool ShardClient::Do(const BreakReceiveQueue& command) {
  return lcore_->Call([&](const OnShard& shard) {
    if (command.srq.broken(shard)) return false;
    command.srq.Fail(shard);
    return true;
  });
}

}  // namespace roci::dataplane
