// Attributes of queue pairs, between libibverbs' structure and the ABI's.
#pragma once

#include <cstdint>

#include "verbs_provider/abi/session.h"
#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

/// Only what `mask` (enum ibv_qp_attr_mask) names is read: programs leave the rest uninitialised.
roci_abi_qp_attr ToAbi(const ibv_qp_attr& attr, uint32_t mask);
/// All but the capabilities.
ibv_qp_attr FromAbi(const roci_abi_qp_attr& abi);

roci_abi_ah_attr ToAbi(const ibv_ah_attr& attr);
ibv_ah_attr FromAbi(const roci_abi_ah_attr& abi);

}  // namespace roci::provider
