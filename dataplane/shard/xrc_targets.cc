#include "dataplane/shard/xrc_targets.h"

#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/qp/shared_receive_queue.h"
#include "dataplane/shard/device_lane.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/shard_access.h"
#include "dataplane/shard/shard_client.h"
#include "dataplane/shard/sharded_device.h"
#include "dataplane/shard/worker.h"

namespace roci::dataplane {

XrcTargets::XrcTargets(ShardedDevice& device, uint32_t lcore_index)
    : device_(device), lcore_(ShardAccess::LcoreOf(device.dataplane(), lcore_index)) {}

XrcTargets::~XrcTargets() {
  while (!targets_.empty()) DestroyTarget(**targets_.begin());
}

uint32_t XrcTargets::lcore_index() const { return lcore_.index(); }

absl::StatusOr<XrcTargets::Created> XrcTargets::CreateTarget(const QueuePairConfig& config) {
  const std::optional<roce::Qpn> qpn = device_.qpns().Allocate(lcore_.index());
  if (!qpn.has_value()) return absl::ResourceExhaustedError("queue pair: no number left");
  absl::Cleanup free_qpn = [&] { device_.qpns().Free(*qpn); };
  targets_.MakeRoom();
  QueuePairConfig of_domain = config;
  of_domain.domain = this;
  of_domain.origin.number = device_.TakeQueuePairNumber();
  auto created = QueuePair::Create(lcore_.services(), nullptr, device_.lane(lcore_.index()),
                                   of_domain, *qpn, 0);
  if (!created.ok()) return created.status();
  QueuePair* qp = created->get();
  qp->TakeFd();  // no program has its (empty) rings
  lcore_.Call([&](const OnShard& shard) { lcore_.worker(shard).AddQueuePair(*qp); });
  std::move(free_qpn).Cancel();
  device_.NoteCreated(*qp);
  targets_.Add(*std::move(created));
  return Created{qp, *qpn};
}

void XrcTargets::DestroyTarget(QueuePair& qp) {
  lcore_.Call([&](const OnShard& shard) {
    qp.GiveBackReceive(shard);
    lcore_.worker(shard).RemoveQueuePair(qp);
  });
  device_.FreeQpn(qp);
  targets_.Take(qp);
}

std::unique_ptr<TargetOpening> XrcTargets::Open(QueuePair& qp, ShardClient& client,
                                                uint64_t user_handle) {
  auto opening = std::make_unique<TargetOpening>();
  opening->user_handle = user_handle;
  lcore_.Call([&](const OnShard& shard) {
    opening->context = &ShardAccess::ContextOf(shard, client);
    qp.events(shard).Add(shard, *opening);
  });
  return opening;
}

void XrcTargets::Close(QueuePair& qp, TargetOpening& opening) {
  lcore_.Call([&](const OnShard& shard) { qp.events(shard).Remove(shard, opening); });
}

void XrcTargets::AddQueue(const OnShard& shard, SharedReceiveQueue& srq) {
  device_.lane(lcore_.index()).receive_queues.Add(shard, srq);
}

bool XrcTargets::RemoveQueue(const OnShard& shard, SharedReceiveQueue& srq, size_t& next) {
  // No message can name the queue from now on.
  if (next == 0) device_.lane(lcore_.index()).receive_queues.Remove(shard, srq);
  const size_t end = std::min(targets_.size(), next + kMostInRow);
  for (; next < end; ++next) targets_[next]->ForgetReceiveQueue(shard, srq);
  return next < targets_.size();
}

}  // namespace roci::dataplane
