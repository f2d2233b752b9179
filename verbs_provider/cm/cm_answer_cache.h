// Cache of the answers that the daemon sends before librdmacm asks for them (abi/rdma_cm.h), by
// identifier, for one event channel.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "verbs_provider/abi/rdma_cm.h"
#include "verbs_provider/base/clock.h"

namespace roci::provider {

/// Thread-safe. An answer is valid until a command may have changed it, and for one second at most.
/// `now_ns` is CLOCK_MONOTONIC time.
class CmAnswerCache {
 public:
  CmAnswerCache() = default;
  ~CmAnswerCache();
  CmAnswerCache(const CmAnswerCache&) = delete;
  CmAnswerCache& operator=(const CmAnswerCache&) = delete;

  /// Stores the prefetched answers of `response` to request number `serial`. Ignores malformed
  /// ones.
  void Insert(const roci_abi_cm_response& response, uint32_t serial, uint64_t now_ns);
  /// Copies the answer to `command` about `what` of `id` to `answer`. False if there is none or it
  /// is longer than `room` bytes.
  bool Find(uint32_t command, uint32_t id, uint32_t what, uint64_t now_ns, void* answer,
            size_t room);
  /// Removes the answers about `id` because request number `serial` may have changed it, and makes
  /// Insert ignore those of earlier requests.
  void Invalidate(uint32_t id, uint32_t serial);
  /// Removes the answers about `id`, which leaves the channel.
  void Remove(uint32_t id) { Invalidate(id, 0); }

 private:
  // Identifiers whose numbers are equal modulo kSlots share a slot; the last one inserted has it.
  static constexpr uint32_t kSlots = 256;
  static constexpr uint64_t kFreshNs = kNsPerSecond;

  struct Slot;

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  Slot* slots_[kSlots] = {};       // allocated at first use
  uint32_t changed_[kSlots] = {};  // serial of the last request that changed an identifier
};

}  // namespace roci::provider
