// Enhanced connection establishment (ibv_set_ece(3)): two ends of one vendor negotiate options.
// This device supports no options.
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {

int QueryEce(ibv_qp* qp, ibv_ece* ece) {
  *ece = {};
  ece->vendor_id = ROCI_ABI_VENDOR_ID;
  return ToQp(qp)->session->client.CheckPeer() ? 0 : EIO;
}

// Ignores all options of the peer: QueryEce reports none of them.
int SetEce(ibv_qp* qp, ibv_ece* ece) {
  if (ece->comp_mask != 0 || ece->vendor_id != ROCI_ABI_VENDOR_ID) return EINVAL;
  return ToQp(qp)->session->client.CheckPeer() ? 0 : EIO;
}

}  // namespace roci::provider
