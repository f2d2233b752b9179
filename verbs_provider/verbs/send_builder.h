// The ibv_wr_* calls: work requests written piece by piece between wr_start and wr_complete.
#pragma once

#include <cstdint>

#include "verbs_provider/abi/rings.h"
#include "verbs_provider/abi/send_opcodes.h"
#include "verbs_provider/base/provider_api.h"

namespace roci::provider {

struct Qp;

/// The state between wr_start and wr_complete, which hold the send queue's lock meanwhile.
struct SendBuilder {
  roci_abi_send_wqe* entry = nullptr;  // the request that setters change
  uint32_t next = 0;                   // index of the next entry
  int error = 0;                       // the first error; later requests are not written
};

/// enum ibv_qp_create_send_ops_flags for the verbs among `opcodes`.
uint64_t SendOperationsOf(const abi::SendOpcodesOfType& opcodes);

/// Sets the ibv_wr_* calls of `qp` for the operations in `flags`, which are a subset of
/// SendOperationsOf(its opcodes).
void EnableSendCalls(Qp* qp, uint64_t flags);

}  // namespace roci::provider
