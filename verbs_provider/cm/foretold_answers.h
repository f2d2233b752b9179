// Answers that the daemon gave before librdmacm asked for them, by identifier, for one event
// channel.
#pragma once

#include <pthread.h>

#include <cstddef>
#include <cstdint>

#include "verbs_provider/abi/rdma_cm.h"

namespace roci::provider {

/// Thread-safe. Answers are forgotten as soon as a command may have changed them, and after a
/// second in any case. Time is an argument.
class ForetoldAnswers {
 public:
  ForetoldAnswers() = default;
  ~ForetoldAnswers();
  ForetoldAnswers(const ForetoldAnswers&) = delete;
  ForetoldAnswers& operator=(const ForetoldAnswers&) = delete;

  /// What came with `response` to request number `serial`. What does not hold together is the
  /// daemon's mistake, and left out.
  void Keep(const roci_abi_cm_response& response, uint32_t serial, uint64_t now_ns);
  /// Copies the answer to `command` about `what` of `id`, which must fit into `room` bytes; false
  /// if there is none.
  bool Find(uint32_t command, uint32_t id, uint32_t what, uint64_t now_ns, void* answer,
            size_t room);
  /// Request number `serial` may have changed `id`: what was told before does not hold.
  void Forget(uint32_t id, uint32_t serial);
  /// `id` leaves the channel.
  void Drop(uint32_t id) { Forget(id, 0); }

 private:
  // Identifiers that are set up at one time, as far as there is place.
  static constexpr uint32_t kSlots = 256;
  static constexpr uint64_t kFreshNs = 1'000'000'000;

  struct Slot;

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  Slot* slots_[kSlots] = {};  // made when first used
  uint32_t changed_[kSlots] = {};
};

}  // namespace roci::provider
