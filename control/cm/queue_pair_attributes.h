// The attributes with which a program brings an identifier's queue pair to INIT, RTR and RTS.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "control/cm/cm_id.h"

namespace roci::control::cm {

// The path to `destination` from the identifier's own address.
ib_uverbs_ah_attr AddressHandle(const CmId& id, const roce::Gid& destination);
// `source`: index in the GID table.
ib_uverbs_ah_attr AddressHandle(const CmId& id, const roce::Gid& destination, uint32_t source);

// `state`: kQpInit, kQpRtr or kQpRts. InvalidArgument: another one, or what it needs is not known
// yet.
absl::Status InitQpAttr(const CmId& id, uint32_t state, ib_uverbs_qp_attr& out);

}  // namespace roci::control::cm
