// Gate 3: the bytes and descriptors that an app sent become a validated request, or an errno.
// Behind it: the size is the command's, the head is right, strings end, enumerations and flags are
// known, extents tile their region, descriptor numbers exist. Handles and limits are the session's
// business. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "control/loop/request_limits.h"
#include "verbs_provider/abi/session.h"

namespace roci::control {

struct CommandInfo {
  const char* name;        // "CREATE_QP"
  uint32_t request_size;   // bytes, exact
  uint32_t response_size;  // bytes, exact
  // Null, or what else has to hold; `request` is a copy of request_size bytes.
  absl::Status (*check)(const void* request, uint32_t fd_count);
  bool takes_fds;
};

// Null for numbers that name no command.
const CommandInfo* FindCommand(uint32_t command);

struct Request {
  const CommandInfo* info = nullptr;
  roci_abi_request head{};
  alignas(8) std::array<std::byte, kMaxRequestBytes> bytes;

  template <class T>
  const T& As() const {
    static_assert(sizeof(T) <= kMaxRequestBytes);
    return *reinterpret_cast<const T*>(bytes.data());
  }
};

// Copies `message` and checks the copy. OK: `out` is complete. Otherwise the errno for the answer,
// and out.head (zeros if the message was too short for one) says whom to answer.
absl::Status DecodeRequest(std::span<const std::byte> message, uint32_t fd_count, Request& out);

// Access flags that a program may ask for and need not be given (IBV_ACCESS_OPTIONAL_RANGE).
inline constexpr uint32_t kOptionalAccess = 0x3FF00000;
// enum ibv_rereg_mr_flags.
inline constexpr uint32_t kReregTranslation = 1;
inline constexpr uint32_t kReregPd = 2;
inline constexpr uint32_t kReregAccess = 4;
inline constexpr uint32_t kReregAll = 7;

}  // namespace roci::control
