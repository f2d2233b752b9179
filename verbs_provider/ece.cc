// Enhanced connection establishment (ibv_set_ece(3)): two ends of one vendor agree on options. This
// device has none to offer, and says so in its own name.
#include "verbs_provider/objects.h"
#include "verbs_provider/verbs_ops.h"

namespace roci::provider {
namespace {

// 0 or an errno.
int VendorOf(ibv_qp* qp, uint32_t* vendor_id) {
  roci_abi_query_device_request request = {};
  roci_abi_query_device_response response = {};
  const int error = ToQp(qp)->session->client.Call(ROCI_ABI_QUERY_DEVICE, &request, &response);
  *vendor_id = response.vendor_id;
  return error;
}

}  // namespace

int QueryEce(ibv_qp* qp, ibv_ece* ece) {
  *ece = {};
  return VendorOf(qp, &ece->vendor_id);
}

// Options of the peer that are not known here are simply not among those that QueryEce then gives.
int SetEce(ibv_qp* qp, ibv_ece* ece) {
  uint32_t own = 0;
  if (ece->comp_mask != 0) return EINVAL;
  const int error = VendorOf(qp, &own);
  if (error != 0) return error;
  return ece->vendor_id == own ? 0 : EINVAL;
}

}  // namespace roci::provider
