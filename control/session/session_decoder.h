// Gate 3: validates the bytes and descriptors of a program's request. A decoded request has the
// size of its command, a valid head, terminated strings, known enumerators and flags, sizes of
// queues within the limits of the device, extents that cover their region exactly, and valid
// descriptor numbers. The session checks handles, and how many objects there may be. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "control/config/device_limits.h"
#include "control/loop/request_limits.h"
#include "control/session/request_checks.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

struct SessionCommandInfo {
  const char* name;        // "CREATE_QP"
  uint32_t request_size;   // bytes, exact
  uint32_t response_size;  // bytes, exact
  RequestCheck* check;     // null: nothing more to check
  // Whether a device has what the command is for; null: each has. A device that lacks it refuses
  // the command as an adapter without it.
  bool (*is_offered)(const DeviceLimits& limits);
  bool takes_fds;
};

// Null: no such command.
const SessionCommandInfo* FindCommand(uint32_t command);

struct Request {
  const SessionCommandInfo* info = nullptr;
  roci_abi_request head{};
  alignas(8) std::array<std::byte, kMaxRequestBytes> bytes;

  template <class T>
  const T& As() const {
    static_assert(sizeof(T) <= kMaxRequestBytes);
    return *reinterpret_cast<const T*>(bytes.data());
  }
};

// Copies `message` and checks the copy. OK: `out` is complete. Otherwise: the errno for the answer;
// out.head has the head for the answer (zeros if the message was shorter than a head). `limits`:
// of the session's device; before it has one, any.
absl::Status DecodeRequest(std::span<const std::byte> message, uint32_t fd_count,
                           const DeviceLimits& limits, Request& out);

// Access flags that the device may ignore (IBV_ACCESS_OPTIONAL_RANGE).
inline constexpr uint32_t kOptionalAccess = 0x3FF00000;
// enum ibv_rereg_mr_flags.
inline constexpr uint32_t kReregTranslation = 1;
inline constexpr uint32_t kReregPd = 2;
inline constexpr uint32_t kReregAccess = 4;
inline constexpr uint32_t kReregAll = 7;

}  // namespace roci::control
