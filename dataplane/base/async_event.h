// The numbers of asynchronous events in the socket: those of enum ibv_event_type.
#pragma once

#include <cstdint>

#include "roce/work.h"

namespace roci::dataplane {

inline constexpr uint32_t kEventCqError = 0;
inline constexpr uint32_t kEventQpFatal = 1;
inline constexpr uint32_t kEventQpRequestError = 2;
inline constexpr uint32_t kEventQpAccessError = 3;
inline constexpr uint32_t kEventCommunicationEstablished = 4;
inline constexpr uint32_t kEventSendQueueDrained = 5;
inline constexpr uint32_t kEventPathMigrated = 6;
inline constexpr uint32_t kEventPathRequestError = 7;
inline constexpr uint32_t kEventDeviceFatal = 8;
inline constexpr uint32_t kEventPortActive = 9;
inline constexpr uint32_t kEventPortError = 10;
inline constexpr uint32_t kEventLidChange = 11;
inline constexpr uint32_t kEventPkeyChange = 12;
inline constexpr uint32_t kEventSmChange = 13;
inline constexpr uint32_t kEventSrqError = 14;
inline constexpr uint32_t kEventSrqLimitReached = 15;
inline constexpr uint32_t kEventLastWqeReached = 16;
inline constexpr uint32_t kEventClientReregister = 17;
inline constexpr uint32_t kEventGidChange = 18;
inline constexpr uint32_t kEventWorkQueueFatal = 19;

constexpr uint32_t EventNumber(roce::QpEvent event) {
  switch (event) {
    case roce::QpEvent::kCommunicationEstablished:
      return kEventCommunicationEstablished;
    case roce::QpEvent::kSendQueueDrained:
      return kEventSendQueueDrained;
    case roce::QpEvent::kFatal:
      return kEventQpFatal;
    case roce::QpEvent::kInvalidRequest:
      return kEventQpRequestError;
    case roce::QpEvent::kAccessViolation:
      return kEventQpAccessError;
    case roce::QpEvent::kLastWqeReached:
      return kEventLastWqeReached;
  }
  return kEventQpFatal;
}

}  // namespace roci::dataplane
