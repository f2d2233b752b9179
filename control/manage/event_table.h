// The asynchronous events that `roci event` raises: name, number and what they are about.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "dataplane/base/async_event.h"

namespace roci::control {

// The object that an event names, and the change of state that comes with it.
enum class EventTarget : uint8_t {
  kPort,             // nothing
  kLink,             // the link is set down or up, which raises it
  kDevice,           // the device's sessions end, which raises it
  kQueuePair,        // nothing
  kFailedQueuePair,  // the queue pair goes to ERR
  kFailedWorkQueue,  // as its kind
  kCompletionQueue,  // it has overflowed, and its queue pairs go to ERR
  kReceiveQueue,     // nothing
  kBrokenReceiveQueue,
};

struct EventRow {
  std::string_view name;  // of enum ibv_event_type, without IBV_EVENT_
  uint32_t number;
  EventTarget target;
};

inline constexpr auto kEventTable = std::to_array<EventRow>({
    {"cq_err", dataplane::kEventCqError, EventTarget::kCompletionQueue},
    {"qp_fatal", dataplane::kEventQpFatal, EventTarget::kFailedQueuePair},
    {"qp_req_err", dataplane::kEventQpRequestError, EventTarget::kFailedQueuePair},
    {"qp_access_err", dataplane::kEventQpAccessError, EventTarget::kFailedQueuePair},
    {"comm_est", dataplane::kEventCommunicationEstablished, EventTarget::kQueuePair},
    {"sq_drained", dataplane::kEventSendQueueDrained, EventTarget::kQueuePair},
    {"path_mig", dataplane::kEventPathMigrated, EventTarget::kQueuePair},
    {"path_mig_err", dataplane::kEventPathRequestError, EventTarget::kQueuePair},
    {"qp_last_wqe_reached", dataplane::kEventLastWqeReached, EventTarget::kQueuePair},
    {"device_fatal", dataplane::kEventDeviceFatal, EventTarget::kDevice},
    {"port_active", dataplane::kEventPortActive, EventTarget::kLink},
    {"port_err", dataplane::kEventPortError, EventTarget::kLink},
    {"lid_change", dataplane::kEventLidChange, EventTarget::kPort},
    {"pkey_change", dataplane::kEventPkeyChange, EventTarget::kPort},
    {"sm_change", dataplane::kEventSmChange, EventTarget::kPort},
    {"client_reregister", dataplane::kEventClientReregister, EventTarget::kPort},
    {"gid_change", dataplane::kEventGidChange, EventTarget::kPort},
    {"srq_err", dataplane::kEventSrqError, EventTarget::kBrokenReceiveQueue},
    {"srq_limit_reached", dataplane::kEventSrqLimitReached, EventTarget::kReceiveQueue},
    {"wq_fatal", dataplane::kEventWorkQueueFatal, EventTarget::kFailedWorkQueue},
});

}  // namespace roci::control
