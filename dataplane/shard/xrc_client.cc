#include "dataplane/shard/xrc_client.h"

#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "dataplane/qp/queue_pair.h"
#include "dataplane/shard/device_client.h"
#include "dataplane/shard/lcore.h"
#include "dataplane/shard/shard_access.h"
#include "dataplane/shard/shard_client.h"
#include "dataplane/shard/sharded_device.h"
#include "dataplane/shard/worker.h"
#include "dataplane/shard/xrc_targets.h"

namespace roci::dataplane {

XrcClient::XrcClient(DeviceClient& device, uint32_t lcore_index)
    : device_(device),
      lcore_(ShardAccess::DeviceOf(device).LcoreOf(lcore_index)),
      targets_(std::make_unique<XrcTargets>(ShardAccess::DeviceOf(device).lane(lcore_index))) {}

XrcClient::~XrcClient() {
  const OwnedSet<QueuePair>& targets = targets_->queue_pairs();
  while (!targets.empty()) Do(DestroyTarget{**targets.begin()});
}

uint32_t XrcClient::lcore_index() const { return lcore_.index(); }

absl::StatusOr<CreatedTarget> XrcClient::Do(const CreateTarget& command) {
  QpnSpace& qpns = ShardAccess::DeviceOf(device_).qpns();
  const std::optional<roce::Qpn> qpn = qpns.Allocate(lcore_.index());
  if (!qpn.has_value()) return absl::ResourceExhaustedError("queue pair: no number left");
  absl::Cleanup free_qpn = [&] { qpns.Free(*qpn); };
  targets_->queue_pairs().MakeRoom();
  QueuePairConfig config = command.config;
  config.domain = targets_.get();
  config.origin.number = device_.TakeQueuePairNumber();
  auto created = QueuePair::Create(lcore_.view(), nullptr, targets_->lane(), config, *qpn, 0);
  if (!created.ok()) return created.status();
  QueuePair* qp = created->get();
  qp->TakeFd();  // no program has its (empty) rings
  lcore_.Call([&](const OnShard& shard) { lcore_.worker(shard).AddQueuePair(*qp); });
  std::move(free_qpn).Cancel();
  device_.NoteCreated(*qp);
  targets_->queue_pairs().Add(*std::move(created));
  return CreatedTarget{qp, *qpn};
}

void XrcClient::Do(const DestroyTarget& command) {
  QueuePair& qp = command.qp;
  lcore_.Call([&](const OnShard& shard) {
    qp.GiveBackReceive(shard);
    lcore_.worker(shard).RemoveQueuePair(qp);
  });
  device_.FreeQpn(qp);
  targets_->queue_pairs().Take(qp);
}

std::unique_ptr<TargetOpening> XrcClient::Do(const OpenTarget& command) {
  auto opening = std::make_unique<TargetOpening>();
  opening->user_handle = command.user_handle;
  lcore_.Call([&](const OnShard& shard) {
    opening->context = &ShardAccess::ContextOf(shard, command.client);
    command.qp.events(shard).Add(shard, *opening);
  });
  return opening;
}

uint32_t XrcClient::Do(const CloseTarget& command) {
  lcore_.Call(
      [&](const OnShard& shard) { command.qp.events(shard).Remove(shard, command.opening); });
  return command.opening.async_events.load(std::memory_order_relaxed);
}

}  // namespace roci::dataplane
