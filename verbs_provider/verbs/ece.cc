// Enhanced connection establishment (ibv_set_ece(3)): two ends of one vendor agree on options. This
// device has none to offer, and says so in its own name.
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {

int QueryEce(ibv_qp* qp, ibv_ece* ece) {
  *ece = {};
  ece->vendor_id = ROCI_ABI_VENDOR_ID;
  return ToQp(qp)->session->client.CheckPeer() ? 0 : EIO;
}

// Options of the peer that are not known here are simply not among those that QueryEce then gives.
int SetEce(ibv_qp* qp, ibv_ece* ece) {
  if (ece->comp_mask != 0 || ece->vendor_id != ROCI_ABI_VENDOR_ID) return EINVAL;
  return ToQp(qp)->session->client.CheckPeer() ? 0 : EIO;
}

}  // namespace roci::provider
