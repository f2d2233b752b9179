// The commands that query an identifier without changing it (QUERY, INIT_QP_ATTR). The daemon sends
// the answers to librdmacm's next queries along with an answer or event, which saves their
// messages.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "control/cm/cm_id.h"
#include "verbs_provider/abi/rdma_cm.h"

namespace roci::control::cm {

struct Question {
  uint32_t command = 0;  // RDMA_USER_CM_CMD_QUERY, _INIT_QP_ATTR
  uint32_t what = 0;     // option, state of the queue pair
};

// Writes the answer to `out`.
absl::Status PutAnswer(const CmId& id, const Question& question, roci_abi_cm_response& out);

enum class Occasion : uint8_t {
  kOther,
  kBound,
  kAddressResolved,
  kRouteResolved,
  kConnectRequest,
  kConnectResponse,
  kQpAttributes,
};
Occasion OccasionOf(uint32_t command);
Occasion OccasionOfEvent(uint32_t event);

// Appends the answers to the queries that librdmacm will send next, as far as there is room.
void PrefetchAnswers(const CmId& id, Occasion occasion, roci_abi_cm_response& out);

}  // namespace roci::control::cm
