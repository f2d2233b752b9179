// Gate 3 for librdmacm's commands: decodes the bytes of a program to a checked command or an errno.
// Identifiers and states are checked by the manager. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "control/cm/cm_id.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::control::cm {

// A row of ROCI_CM_COMMANDS.
struct CommandInfo {
  static constexpr uint32_t kNoId = ~0u;

  const char* name;    // "CREATE_ID"
  uint32_t in_size;    // bytes, of the newest form
  uint32_t min_size;   // of the oldest accepted form; its missing fields are 0
  uint32_t out_size;   // of the oldest form of the answer; 0: none
  uint32_t id_offset;  // of the identifier in the command; kNoId: the command is about the channel
  bool is_query;       // changes nothing
};

// Null: unknown or unsupported command.
const CommandInfo* FindCommand(uint32_t command);

struct Command {
  const CommandInfo* info = nullptr;
  uint32_t number = 0;
  alignas(8) std::array<std::byte, ROCI_ABI_CM_DATA_MAX> bytes{};
  std::span<const std::byte> extra;  // in `bytes`

  // The identifier that the command is about. None if the command is about the channel, or if
  // DecodeCommand found no such command.
  std::optional<uint32_t> id() const;

  template <class T>
  const T& As() const {
    static_assert(sizeof(T) <= ROCI_ABI_CM_DATA_MAX);
    return *reinterpret_cast<const T*>(bytes.data());
  }
};

// `request` is the daemon's own copy. EINVAL: wrong sizes; ENOSYS: no such command; ENOSPC: the
// program has no room for the answer.
absl::Status DecodeCommand(const roci_abi_cm_request& request, Command& out);

}  // namespace roci::control::cm
