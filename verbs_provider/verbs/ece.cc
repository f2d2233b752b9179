// Enhanced connection establishment (ibv_set_ece(3)): two ends of one vendor agree on options.
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

uint32_t OfferedEce(const Qp& qp) {
  const bool repeats = qp.vqp.qp.qp_type == IBV_QPT_RC && qp.session->repeats_selectively;
  return repeats ? ROCI_ABI_ECE_SELECTIVE_REPEAT : 0;
}

}  // namespace

uint8_t AgreedEce(const Qp& qp) {
  const uint32_t options = qp.ece_options;
  return options == Qp::kEceNotSet ? uint8_t{0} : static_cast<uint8_t>(options);
}

// The options that the device offers, or those that both ends do.
int QueryEce(ibv_qp* ibqp, ibv_ece* ece) {
  const Qp* qp = ToQp(ibqp);
  const uint32_t options = qp->ece_options;
  *ece = {};
  ece->vendor_id = ROCI_ABI_VENDOR_ID;
  ece->options = options == Qp::kEceNotSet ? OfferedEce(*qp) : options;
  return qp->session->client.CheckPeer() ? 0 : EIO;
}

// Options of the peer that the device does not offer are ignored. They count from the change to RTR
// on.
int SetEce(ibv_qp* ibqp, ibv_ece* ece) {
  if (ece->comp_mask != 0 || ece->vendor_id != ROCI_ABI_VENDOR_ID) return EINVAL;
  Qp* qp = ToQp(ibqp);
  qp->ece_options = ece->options & OfferedEce(*qp);
  return qp->session->client.CheckPeer() ? 0 : EIO;
}

}  // namespace roci::provider
