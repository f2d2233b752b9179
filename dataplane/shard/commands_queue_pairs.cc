// Commands about queue pairs and address handles.
#include <algorithm>
#include <cassert>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "dataplane/qp/completion_queue.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/shard/device_client.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/shard_client_inl.h"
#include "dataplane/shard/sharded_device.h"
#include "dataplane/shard/worker.h"

namespace roci::dataplane {

// Makes all allocations before changes that would have to be undone.
absl::StatusOr<CreatedQueuePair> ShardClient::Do(const CreateQueuePair& command) {
  assert(command.handle < max_queue_pairs_);
  const std::optional<roce::Qpn> qpn = sharded_device_.qpns().Allocate(lcore_->index());
  if (!qpn.has_value()) return absl::ResourceExhaustedError("queue pair: no number left");
  absl::Cleanup free_qpn = [&] { sharded_device_.qpns().Free(*qpn); };
  QueuePairConfig config = command.config;
  config.origin.number = device_.TakeQueuePairNumber();
  auto created =
      QueuePair::Create(lcore_->view(), context_.get(), sharded_device_.lane(lcore_->index()),
                        config, *qpn, command.handle);
  if (!created.ok()) return created.status();
  QueuePair* qp = created->get();
  lcore_->Call([&](const OnShard& shard) {
    context_->MakeRoomFor(shard, command.handle);
    lcore_->worker(shard).AddQueuePair(*qp);
    context_->AddQueuePair(shard, *std::move(created));
  });
  std::move(free_qpn).Cancel();
  device_.NoteCreated(*qp);
  if (qp->send_cq() != nullptr) qp->send_cq()->AddReference();
  if (qp->recv_cq() != nullptr) qp->recv_cq()->AddReference();
  if (qp->srq() != nullptr) qp->srq()->AddReference();
  return CreatedQueuePair{qp, qp->qpn(), qp->TakeFd()};
}

EventCounts ShardClient::Do(const DestroyQueuePair& command) {
  QueuePair& qp = command.qp;
  SendPosted(qp.handle(), qp.handle() + 1);
  // Freed by this thread, not by the lcore.
  const uint32_t qpn = qp.qpn().value();
  uint32_t windows = DestroyQueuePair::kWindowsInRow;
  bool are_windows_released = false;
  const std::unique_ptr<QueuePair> owned = CallBetweenCopies([&](const OnShard& shard) {
    qp.GiveBackReceive(shard);
    lcore_->worker(shard).RemoveQueuePair(qp);
    are_windows_released = context_->keys(shard).ReleaseWindowsOf(qpn, &windows);
    return context_->RemoveQueuePair(shard, qp.handle());
  });
  uint32_t slot = memory::KeyTable::kFirstSlot;
  if (!are_windows_released) {
    lcore_->CallInParts([&](const OnShard& shard) {
      slot = context_->keys(shard).ReleaseWindowsIn(qpn, slot, DestroyQueuePair::kWindowsInRow);
      return slot != 0;
    });
  }
  const EventCounts counts{0, qp.async_events()};
  if (qp.send_cq() != nullptr) qp.send_cq()->RemoveReference();
  if (qp.recv_cq() != nullptr) qp.recv_cq()->RemoveReference();
  if (qp.srq() != nullptr) qp.srq()->RemoveReference();
  device_.FreeQpn(qp);
  return counts;
}

ModifiedQueuePair ShardClient::Do(const ModifyQueuePair& command) {
  QueuePair& qp = command.qp;
  const auto modify = [&](const OnShard& shard) {
    Worker& worker = lcore_->worker(shard);
    worker.RefreshTime();  // for the completions of flushed requests
    const roce::ModifyResult result =
        qp.Modify(shard, command.attributes, command.mask, command.path);
    const bool has_effects =
        result == roce::ModifyResult::kOk || result == roce::ModifyResult::kMustFlush;
    if (has_effects) worker.ScheduleVisit(qp);
    if (result == roce::ModifyResult::kOk && command.use_selective_repeat) {
      qp.UseSelectiveRepeat(shard);
    }
    return ModifiedQueuePair{result, qp.core(shard).state()};
  };
  ModifiedQueuePair modified = CallBetweenCopies(modify);
  while (modified.result == roce::ModifyResult::kMustFlush) {
    lcore_->FinishRound();
    modified = CallBetweenCopies(modify);
  }
  return modified;
}

void ShardClient::Do(const SetPath& command) {
  lcore_->Call([&](const OnShard& shard) { command.qp.SetPath(shard, command.path); });
}

roce::QpAttributes ShardClient::Do(const QueryQueuePair& command) {
  return lcore_->Call([&](const OnShard& shard) { return command.qp.Query(shard); });
}

std::vector<QueuePairInfo> ShardClient::Do(const InspectQueuePairs& command) {
  std::vector<QueuePairInfo> infos;
  infos.reserve(command.queue_pairs.size());
  const auto queue_pairs = command.queue_pairs;
  lcore_->CallInParts([&](const OnShard& shard) {
    const size_t end = std::min(queue_pairs.size(), infos.size() + InspectQueuePairs::kMostInRow);
    while (infos.size() < end) infos.push_back(queue_pairs[infos.size()]->Inspect(shard));
    return end < queue_pairs.size();
  });
  return infos;
}

uint32_t ShardClient::Do(const RaiseQueuePairEvent& command) {
  return lcore_->Call([&](const OnShard& shard) {
    const uint32_t programs = command.qp.events(shard).SendNumber(shard, command.type);
    lcore_->worker(shard).stats().async_events.Add(programs);
    return programs;
  });
}

absl::StatusOr<uint32_t> ShardClient::Do(const CreateAddressHandle& command) {
  uint32_t handle = 0;
  const bool added = lcore_->Call([&](const OnShard& shard) {
    return context_->addresses(shard).Add(command.pd, command.path, &handle);
  });
  if (!added) return absl::ResourceExhaustedError("address handle: none left");
  return handle;
}

absl::Status ShardClient::Do(const DestroyAddressHandle& command) {
  const bool removed = lcore_->Call(
      [&](const OnShard& shard) { return context_->addresses(shard).Remove(command.handle); });
  return removed ? absl::OkStatus() : absl::NotFoundError("address handle");
}

}  // namespace roci::dataplane
