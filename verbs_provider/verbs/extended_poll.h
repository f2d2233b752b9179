// Extended completion queues (ibv_create_cq_ex(3)): the program polls entry by entry and reads
// single fields.
#pragma once

#include <cstdint>

#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

struct Cq;

/// The supported fields: enum ibv_create_cq_wc_flags.
inline constexpr uint64_t kExtendedFields =
    uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_FLOW_TAG |
    IBV_WC_EX_WITH_TM_INFO | IBV_WC_EX_WITH_CVLAN;

/// Sets the poll and read calls of `cq` for `fields`, a subset of kExtendedFields.
void EnableExtendedPoll(Cq* cq, uint64_t fields);

}  // namespace roci::provider
