#include "control/cm/command_decoder.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "control/loop/errno_status.h"
#include "verbs_provider/abi/cm_commands.h"

namespace roci::control::cm {
namespace {

// Size of the oldest accepted form of a structure in bytes: older libraries do not know all fields.
template <class T>
constexpr uint32_t kOldestBytes = sizeof(T);
template <>
constexpr uint32_t kOldestBytes<void> = 0;
template <>
constexpr uint32_t kOldestBytes<rdma_ucm_connect> = offsetof(rdma_ucm_connect, ece);
template <>
constexpr uint32_t kOldestBytes<rdma_ucm_accept> = offsetof(rdma_ucm_accept, ece);
template <>
constexpr uint32_t kOldestBytes<rdma_ucm_event_resp> = offsetof(rdma_ucm_event_resp, ece);
template <>
constexpr uint32_t kOldestBytes<rdma_ucm_query_route_resp> = offsetof(rdma_ucm_query_route_resp,
                                                                      ibdev_index);

template <class In, roci_abi_cm_subject kSubject>
constexpr uint32_t IdOffset() {
  if constexpr (kSubject == ROCI_ABI_CM_ON_CHANNEL) {
    return CommandInfo::kNoId;
  } else {
    return offsetof(In, id);
  }
}

template <class In, class Answer, roci_abi_cm_subject kSubject>
constexpr CommandInfo Info(const char* name) {
  return {.name = name,
          .in_size = sizeof(In),
          .min_size = kOldestBytes<In>,
          .out_size = kOldestBytes<Answer>,
          .id_offset = IdOffset<In, kSubject>(),
          .is_query = kSubject == ROCI_ABI_CM_QUERY_ID};
}

}  // namespace

const CommandInfo* FindCommand(uint32_t command) {
  switch (command) {
#define ROCI_ROW(name, subject, type, answer, handler)                                     \
  case RDMA_USER_CM_CMD_##name: {                                                          \
    static constexpr CommandInfo kInfo = Info<type, answer, ROCI_ABI_CM_##subject>(#name); \
    return &kInfo;                                                                         \
  }
    ROCI_CM_COMMANDS(ROCI_ROW)
#undef ROCI_ROW
    default:
      return nullptr;
  }
}

std::optional<uint32_t> Command::id() const {
  if (info == nullptr || info->id_offset == CommandInfo::kNoId) return std::nullopt;
  uint32_t id;
  std::memcpy(&id, bytes.data() + info->id_offset, sizeof(id));
  return id;
}

absl::Status DecodeCommand(const roci_abi_cm_request& request, Command& out) {
  out.info = FindCommand(request.command);
  out.number = request.command;
  if (out.info == nullptr) return StatusFromErrno(ENOSYS, "unknown command");
  const uint32_t in = request.in_size;
  const uint32_t extra = request.extra_size;
  if (in < out.info->min_size || in > sizeof(request.data) || extra > sizeof(request.data) - in) {
    return absl::InvalidArgumentError("size of the command");
  }
  if (extra != 0 && request.command != RDMA_USER_CM_CMD_SET_OPTION) {
    return absl::InvalidArgumentError("data after the command");
  }
  if (request.out_size < out.info->out_size) return StatusFromErrno(ENOSPC, "answer");
  // A command longer than its newest form is truncated, as in Linux.
  const size_t head = std::min<size_t>(in, out.info->in_size);
  std::memcpy(out.bytes.data(), request.data, head);
  if (extra > out.bytes.size() - out.info->in_size) {
    return absl::InvalidArgumentError("the option is too long");
  }
  std::memcpy(out.bytes.data() + out.info->in_size, request.data + in, extra);
  out.extra = std::span<const std::byte>(out.bytes).subspan(out.info->in_size, extra);
  return absl::OkStatus();
}

}  // namespace roci::control::cm
