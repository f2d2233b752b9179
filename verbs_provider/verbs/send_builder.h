// The ibv_wr_* calls: work requests written piece by piece between wr_start and wr_complete.
#pragma once

#include <cstdint>

#include "verbs_provider/abi/rings.h"
#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

struct Qp;

/// What is under way between wr_start and wr_complete, under the send queue's lock.
struct SendBuilder {
  roci_abi_send_wqe* entry = nullptr;  // the request that the next setter belongs to
  uint32_t next = 0;                   // index of the next entry
  int error = 0;                       // the first one; what follows it is not written
};

/// enum ibv_qp_create_send_ops_flags for the operations of `type`.
uint64_t SendOperationsOf(ibv_qp_type type);

/// Sets the calls of `qp` up for the operations in `flags`, each of which its type has.
void EnableSendCalls(Qp* qp, uint64_t flags);

}  // namespace roci::provider
