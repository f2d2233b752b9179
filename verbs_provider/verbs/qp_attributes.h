// Conversion of queue pair attributes and address vectors between libibverbs and the ABI.
#pragma once

#include <cstdint>

#include "verbs_provider/abi/session.h"
#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

/// Reads only the members in `mask` (enum ibv_qp_attr_mask), because programs leave the others
/// uninitialised.
roci_abi_qp_attr ToAbi(const ibv_qp_attr& attr, uint32_t mask);
/// Converts all members except the capabilities.
ibv_qp_attr FromAbi(const roci_abi_qp_attr& abi);

roci_abi_ah_attr ToAbi(const ibv_ah_attr& attr);
ibv_ah_attr FromAbi(const roci_abi_ah_attr& abi);

}  // namespace roci::provider
