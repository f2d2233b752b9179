// An XRC domain (IBTA vol 1, A14): queue pairs that only receive and belong to no program alone,
// and the shared receive queues of several programs that requests to them may name.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "dataplane/qp/queue_pair.h"

namespace roci::dataplane {

class Device;
class Lcore;
class Session;
class SharedReceiveQueue;

// One handle that a session has for a receiving queue pair. Its events go to every one.
struct TargetOpening {
  Session* session;
  uint64_t user_handle;
  std::atomic<uint32_t> async_events{0};

  void RaiseEvent(uint32_t type);
};

// Everything in a domain lives on one lcore, that of all its sessions. Members are called by the
// control thread unless they say "on the lcore".
class XrcDomain {
 public:
  XrcDomain(Device& device, Lcore& lcore) : device_(device), lcore_(lcore) {}
  // Destroys the queue pairs that are left. No session has one open, or a shared receive queue
  // here.
  ~XrcDomain();
  XrcDomain(const XrcDomain&) = delete;
  XrcDomain& operator=(const XrcDomain&) = delete;

  Device& device() { return device_; }
  Lcore& lcore() { return lcore_; }

  // A queue pair that nobody has open yet. Of the config its type and limits count.
  absl::StatusOr<QueuePair*> CreateTarget(const QueuePairConfig& config);
  void DestroyTarget(QueuePair& qp);
  QueuePair* FindTarget(roce::Qpn qpn) const;
  std::unique_ptr<TargetOpening> Open(QueuePair& qp, Session& session, uint64_t user_handle);
  void Close(QueuePair& qp, TargetOpening& opening);

  // ---- On the shard
  void AddQueue(const OnShard& shard, SharedReceiveQueue& srq);
  // The queue pairs that use it are without one from now on.
  void RemoveQueue(const OnShard& shard, SharedReceiveQueue& srq);
  // The shared receive queue of that number; null if there is none, or not in this domain.
  SharedReceiveQueue* Find(uint32_t number) const;

 private:
  Device& device_;
  Lcore& lcore_;
  std::vector<std::unique_ptr<QueuePair>> targets_;
};

}  // namespace roci::dataplane
