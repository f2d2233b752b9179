// One app's open device: the doorbell page, the keys, queue pairs, completion queues and address
// handles, all of which live on one lcore.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dataplane/address_table.h"
#include "dataplane/completion_queue.h"
#include "dataplane/doorbells.h"
#include "dataplane/queue_pair.h"
#include "dataplane/shared_memory.h"
#include "memory/app_memory.h"
#include "memory/key_table.h"

namespace roci::dataplane {

class Device;
class Lcore;

struct SessionConfig {
  const memory::AppMemory* app = nullptr;  // outlives the session
  uint32_t max_keys = 65536;
  uint32_t max_queue_pairs = 65536;  // at most ROCI_ABI_MAX_QP_HANDLES
  uint32_t max_address_handles = 65536;
  // Writing end of the async event pipe, non-blocking. The session owns it.
  Fd async_pipe;
};

// A queue pair as the create response describes it. `memory` is to be passed to the app.
struct CreatedQueuePair {
  QueuePair* queue_pair;
  Fd memory;
};
struct CreatedCompletionQueue {
  CompletionQueue* completion_queue;
  Fd memory;
};
struct EventCounts {
  uint32_t comp_events = 0;
  uint32_t async_events = 0;
};

// All members are called by the control thread unless they say "on the lcore". Objects are owned by
// the session; pointers to them are good until they are destroyed.
class Session {
 public:
  static absl::StatusOr<std::unique_ptr<Session>> Create(Device& device, Lcore& lcore,
                                                         SessionConfig config);
  // Removes everything that is left from the lcore, then frees it.
  ~Session();

  Device& device() { return device_; }
  Lcore& lcore() { return lcore_; }

  // Descriptors for the HELLO response; the caller passes them on and keeps the session's own open.
  int doorbell_fd() const { return doorbell_memory_.fd(); }
  int wake_fd() const { return wake_.get(); }
  size_t doorbell_bytes() const { return doorbell_memory_.size(); }

  // On the lcore only: `session.lcore().Call([&] { session.keys().Register(...); })`.
  memory::KeyTable& keys() { return keys_; }

  // `channel` is the writing end of a completion channel's pipe (non-blocking; it must stay open as
  // long as the CQ), or -1. `entries` >= 1 is what was asked for.
  absl::StatusOr<CreatedCompletionQueue> CreateCompletionQueue(uint32_t entries,
                                                               uint64_t user_handle, int channel);
  // Continues in a new ring (see RESIZE_CQ in abi/session.h). InvalidArgument: `consumer` is no
  // possible value, or the new ring cannot hold what is unconsumed.
  absl::StatusOr<Fd> ResizeCompletionQueue(CompletionQueue& cq, uint32_t entries,
                                           uint32_t consumer);
  // FailedPrecondition while a queue pair uses it.
  absl::StatusOr<EventCounts> DestroyCompletionQueue(CompletionQueue& cq);

  // Limits in `config` are checked against kQueueLimits; what is granted is in qp.layout().
  // ResourceExhausted: no handle, QPN or memory left.
  absl::StatusOr<CreatedQueuePair> CreateQueuePair(const QueuePairConfig& config);
  EventCounts DestroyQueuePair(QueuePair& qp);
  // `path` is the resolved address vector; needed when `mask` has kAttrAddressVector, else null.
  // Checks the transition and the values (against `limits`), then applies them on the lcore.
  roce::ModifyResult ModifyQueuePair(QueuePair& qp, const roce::QpAttributes& attributes,
                                     uint32_t mask, const roce::Path* path,
                                     const roce::QpAttributeLimits& limits);
  // The path alone, as when a neighbour's MAC has changed.
  void SetPath(QueuePair& qp, const roce::Path& path);
  void QueryQueuePair(QueuePair& qp, roce::QpAttributes& out);
  QueuePairInfo InspectQueuePair(QueuePair& qp);
  QueuePair* queue_pair(uint32_t handle);

  // Handles are small numbers, reused. ResourceExhausted at the limit; NotFound.
  absl::StatusOr<uint32_t> CreateAddressHandle(uint32_t pd, const roce::Path& path);
  absl::Status DestroyAddressHandle(uint32_t handle);

  // Writes an event to the async pipe; any thread. False if the pipe is full or closed.
  bool SendAsyncEvent(uint64_t element, uint32_t type);

  uint32_t queue_pair_count() const { return static_cast<uint32_t>(queue_pairs_.size()); }
  uint32_t completion_queue_count() const {
    return static_cast<uint32_t>(completion_queues_.size());
  }

  // ---- On the lcore
  Doorbells& doorbells() { return doorbells_; }
  QueuePair* FindQueuePair(uint32_t handle) const {
    return handle < handles_.size() ? handles_[handle] : nullptr;
  }
  const AddressTable& addresses() const { return addresses_; }

 private:
  Session(Device& device, Lcore& lcore, SessionConfig config);
  absl::Status OpenDoorbells();
  std::optional<uint32_t> FreeHandle();

  Device& device_;
  Lcore& lcore_;
  SharedMemory doorbell_memory_;
  Fd wake_;
  Fd async_pipe_;
  Doorbells doorbells_;
  memory::KeyTable keys_;
  AddressTable addresses_;
  // Read by the lcore and changed on it.
  std::vector<QueuePair*> handles_;
  // Control thread only.
  bool attached_ = false;
  uint32_t max_queue_pairs_;
  uint32_t next_handle_ = 0;
  std::vector<QueuePair*> by_handle_;
  std::vector<std::unique_ptr<QueuePair>> queue_pairs_;
  std::vector<std::unique_ptr<CompletionQueue>> completion_queues_;
};

}  // namespace roci::dataplane
