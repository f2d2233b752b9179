// Extended completion queues (ibv_create_cq_ex(3)): polling entry by entry, reading only the fields
// that the app asked for.
#pragma once

#include <cstdint>

#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

struct Cq;

/// enum ibv_create_cq_wc_flags that can be asked for.
inline constexpr uint64_t kExtendedFields =
    uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK | IBV_WC_EX_WITH_FLOW_TAG |
    IBV_WC_EX_WITH_TM_INFO | IBV_WC_EX_WITH_CVLAN;

/// Sets the calls of `cq` up for `fields`, a part of kExtendedFields.
void EnableExtendedPoll(Cq* cq, uint64_t fields);

}  // namespace roci::provider
