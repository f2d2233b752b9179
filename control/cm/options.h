// The options of identifiers (rdma_set_option(3)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "control/cm/cm_id.h"

namespace roci::control::cm {

absl::Status SetOption(CmId& id, uint32_t level, uint32_t name, std::span<const std::byte> value);

}  // namespace roci::control::cm
