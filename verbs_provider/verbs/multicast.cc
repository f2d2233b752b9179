// Multicast groups. The LID has no meaning on Ethernet (IBTA vol 1, A16.4.2).
#include <cstring>

#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

int Call(ibv_qp* ibqp, uint32_t command, const ibv_gid* gid) {
  roci_abi_multicast_request request = {};
  roci_abi_plain_response response = {};
  request.qp = ibqp->handle;
  static_assert(sizeof(request.gid) == sizeof(gid->raw));
  memcpy(request.gid, gid->raw, sizeof(request.gid));
  return ToQp(ibqp)->session->client.Call(command, &request, &response);
}

}  // namespace

int AttachMulticast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  return Call(qp, ROCI_ABI_ATTACH_MULTICAST, gid);
}

int DetachMulticast(ibv_qp* qp, const ibv_gid* gid, uint16_t) {
  return Call(qp, ROCI_ABI_DETACH_MULTICAST, gid);
}

}  // namespace roci::provider
