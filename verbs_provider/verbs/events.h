// The events of an object that the program destroys: removes those that the program has not read,
// and waits until the program has acknowledged the others.
#pragma once

#include <cstdint>

#include "verbs_provider/base/no_cancellation.h"
#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

struct VerbsSession;

/// Removes unread events from the sockets that libibverbs reads: the daemon never receives from the
/// program's end. Create it before the destroy request: it serializes event removal among threads,
/// since no other thread must count events meanwhile. Nothing happens in a forked child.
class EventRemoval {
 public:
  explicit EventRemoval(VerbsSession* session);
  ~EventRemoval();
  EventRemoval(const EventRemoval&) = delete;
  EventRemoval& operator=(const EventRemoval&) = delete;

  /// Returns how many of the `sent` asynchronous events of `element` the program has read.
  uint32_t RemoveAsyncEvents(const void* element, uint32_t sent);
  /// The same for completion events of `cq`.
  uint32_t RemoveCompletionEvents(ibv_cq* cq, uint32_t sent);

 private:
  VerbsSession* const session_;
  const NoCancellation no_cancellation_;
  const bool locked_;
};

/// Blocks until the program has acknowledged `comp_events` completion events (ibv_ack_cq_events(3))
/// and `async_events` asynchronous events (ibv_ack_async_event(3)) of `cq`.
void AwaitCqAcknowledgements(ibv_cq* cq, uint32_t comp_events, uint32_t async_events);
/// Likewise for the asynchronous events of a QP.
void AwaitQpAcknowledgements(ibv_qp* qp, uint32_t async_events);
/// Likewise for the asynchronous events of a shared receive queue.
void AwaitSrqAcknowledgements(ibv_srq* srq, uint32_t async_events);

}  // namespace roci::provider
