// An XRC domain (IBTA vol 1, A14): receive-only queue pairs that no single program owns, and the
// shared receive queues of several programs, which requests to these queue pairs name.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "dataplane/base/owned_set.h"
#include "dataplane/types/queue_pair_config.h"
#include "dataplane/types/target_opening.h"
#include "roce/types.h"

namespace roci::dataplane {

class ShardedDevice;
class Lcore;
class OnShard;
class QueuePair;
class SharedReceiveQueue;
class ShardClient;

// A domain and all its contexts are on one lcore. Control thread, except where "on the shard" is
// noted.
class XrcTargets {
 public:
  struct Created {
    QueuePair* qp;
    roce::Qpn qpn;
  };

  XrcTargets(ShardedDevice& device, uint32_t lcore_index);
  // Destroys the remaining queue pairs. No context may have one open, or have a shared receive
  // queue in the domain.
  ~XrcTargets();
  XrcTargets(const XrcTargets&) = delete;
  XrcTargets& operator=(const XrcTargets&) = delete;

  ShardedDevice& device() { return device_; }
  uint32_t lcore_index() const;

  // Creates a queue pair that no context has open yet. Uses only the type and limits of the config.
  absl::StatusOr<Created> CreateTarget(const QueuePairConfig& config);
  void DestroyTarget(QueuePair& qp);
  std::unique_ptr<TargetOpening> Open(QueuePair& qp, ShardClient& client, uint64_t user_handle);
  void Close(QueuePair& qp, TargetOpening& opening);

  // ---- On the shard
  void AddQueue(const OnShard& shard, SharedReceiveQueue& srq);
  // The queue pairs that use it have no shared receive queue afterwards. Visits kMostInRow queue
  // pairs from `next` on, which is 0 at first. True: call again, after a loop iteration.
  static constexpr size_t kMostInRow = 64;
  bool RemoveQueue(const OnShard& shard, SharedReceiveQueue& srq, size_t& next);

 private:
  ShardedDevice& device_;
  Lcore& lcore_;
  OwnedSet<QueuePair> targets_;
};

}  // namespace roci::dataplane
