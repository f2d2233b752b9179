#include "control/cm/cm_id.h"

#include "control/cm/channel.h"

namespace roci::control::cm {

uint32_t CmId::account() const { return channel->peer().uid; }

void CmId::Post(rdma_ucm_event_resp event) {
  // The program does not know this identifier before it accepts the request.
  if (uid == 0) return;
  event.uid = uid;
  event.id = number;
  channel->Push({number, 0, event});
}

void CmId::Post(uint32_t event, int32_t status) {
  rdma_ucm_event_resp out = {};
  out.event = event;
  out.status = static_cast<uint32_t>(status);
  Post(out);
}

}  // namespace roci::control::cm
