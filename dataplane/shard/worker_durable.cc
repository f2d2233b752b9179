// The part of the loop for FLUSH for persistence: syncs that start, finish, and wait for room.
#include <algorithm>
#include <utility>

#include "dataplane/qp/queue_pair.h"
#include "dataplane/shard/worker.h"
#include "roce/work.h"

namespace roci::dataplane {
namespace {

// Most waiting queue pairs that retry at a time.
constexpr uint32_t kWokenTogether = 8;
// Time between retries if no sync finishes: a queue pair that was woken may not have used the room.
constexpr uint64_t kRetryNs = roce::kNsPerMs;

}  // namespace

// Starts the flush that `qp` has left in `durable_request_`.
void Worker::StartDurable(QueuePair& qp) {
  const void* const charged_to = std::exchange(durable_request_.charged_to, nullptr);
  memory::DurableRange& range = durable_request_.range;
  if (durable_writer_.Start(shard_, &qp, charged_to, range) == DurableWriter::Started::kYes) {
    stats_.durable_syncs.Add(1);
    return;
  }
  range = {};  // releases the files
  qp.RefuseDurable(shard_);
  // A queue pair is in the list at most once.
  ForgetDurable(qp);
  durable_waiters_.push_back({&qp, charged_to});
}

void Worker::ForgetDurable(QueuePair& qp) {
  durable_writer_.GiveUp(shard_, &qp);
  std::erase_if(durable_waiters_, [&](const DurableWaiter& waiter) { return waiter.qp == &qp; });
}

uint32_t Worker::CollectDurable() {
  uint32_t work = 0;
  durable_writer_.Collect(shard_, [&](void* owner, const void* charged_to, bool ok) {
    ++work;
    if (!ok) stats_.durable_failures.Add(1);
    if (owner != nullptr) {
      QueuePair& qp = *static_cast<QueuePair*>(owner);
      const auto state = ok ? roce::DurableState::kDone : roce::DurableState::kFailed;
      if (qp.EndDurable(shard_, state).has_transmit) AwaitTurn(qp);
    }
    RetryDurable(charged_to);
  });
  if (!durable_waiters_.empty() && now_ - durable_retry_ns_ > kRetryNs) {
    durable_retry_ns_ = now_;
    RetryDurable(nullptr);
  }
  return work;
}

// Wakes some queue pairs that have waited longest. `charged_to` not null: only queue pairs of
// `charged_to`.
void Worker::RetryDurable(const void* charged_to) {
  uint32_t left = kWokenTogether;
  std::erase_if(durable_waiters_, [&](const DurableWaiter& waiter) {
    if (left == 0 || (charged_to != nullptr && waiter.charged_to != charged_to)) return false;
    --left;
    if (waiter.qp->RetryDurable(shard_).has_transmit) AwaitTurn(*waiter.qp);
    return true;
  });
}

uint64_t Worker::DurableSleepNs() const { return durable_waiters_.empty() ? ~0ull : kRetryNs; }

}  // namespace roci::dataplane
