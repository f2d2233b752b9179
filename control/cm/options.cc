#include "control/cm/options.h"

#include <cerrno>
#include <cstring>

#include "control/cm/address_resolution.h"
#include "control/cm/verbs_numbers.h"
#include "control/loop/errno_status.h"

namespace roci::control::cm {

absl::Status SetOption(CmId& id, uint32_t level, uint32_t name, std::span<const std::byte> value) {
  const auto number = [&value]() -> int {
    int out = 0;
    std::memcpy(&out, value.data(), sizeof(out));
    return out;
  };
  if (level == RDMA_OPTION_IB) {
    if (name != RDMA_OPTION_IB_PATH) return StatusFromErrno(ENOSYS, "unknown option");
    // Ignores the given path: RoCE resolves its own.
    if (value.empty() || value.size() % sizeof(ib_path_rec_data) != 0)
      return Invalid("wrong size of the path records");
    return ResolveRoute(id);
  }
  if (level != RDMA_OPTION_ID) return StatusFromErrno(ENOSYS, "unknown option level");
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      if (value.size() != 1) return Invalid("wrong length of the option");
      id.type_of_service = std::to_integer<uint8_t>(value[0]);
      return absl::OkStatus();
    case RDMA_OPTION_ID_REUSEADDR:
      if (value.size() != sizeof(int)) return Invalid("wrong length of the option");
      if (id.state != IdState::kIdle && (number() == 0 || id.state == IdState::kListen)) {
        return Invalid("too late to change the reuse of addresses");
      }
      id.reuse_address = number() != 0;
      return absl::OkStatus();
    case RDMA_OPTION_ID_AFONLY:
      if (value.size() != sizeof(int)) return Invalid("wrong length of the option");
      if (id.state != IdState::kIdle && id.state != IdState::kBound) {
        return Invalid("too late to restrict the address family");
      }
      id.family_only = number() != 0;
      return absl::OkStatus();
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (value.size() != 1) return Invalid("wrong length of the option");
      if (id.qp_type != kQpRc && id.qp_type != kQpXrcSend) return Invalid("QP type");
      if (std::to_integer<uint8_t>(value[0]) > roce::kMaxTimeoutExponent) {
        return Invalid("the ACK timeout is too long");
      }
      id.ack_timeout = std::to_integer<uint8_t>(value[0]);
      return absl::OkStatus();
    default:
      return StatusFromErrno(ENOSYS, "unknown option");
  }
}

}  // namespace roci::control::cm
