// Waits until the program has acknowledged all events of an object that it destroys.
#pragma once

#include <cstdint>

#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

/// Blocks until the program has acknowledged `comp_events` completion events (ibv_ack_cq_events(3))
/// and `async_events` asynchronous events (ibv_ack_async_event(3)) of `cq`.
void AwaitCqAcknowledgements(ibv_cq* cq, uint32_t comp_events, uint32_t async_events);
/// Likewise for the asynchronous events of a QP.
void AwaitQpAcknowledgements(ibv_qp* qp, uint32_t async_events);
/// Likewise for the asynchronous events of a shared receive queue.
void AwaitSrqAcknowledgements(ibv_srq* srq, uint32_t async_events);

}  // namespace roci::provider
