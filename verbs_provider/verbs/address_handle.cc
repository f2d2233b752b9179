// Address handles.
#include "verbs_provider/base/allocate.h"
#include "verbs_provider/verbs/domain.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/qp_attributes.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {

ibv_ah* CreateAh(ibv_pd* pd, ibv_ah_attr* attr) {
  auto* ah = Allocate<Ah>();
  if (ah == nullptr) return nullptr;
  roci_abi_create_ah_request request = {};
  roci_abi_handle_response response = {};
  request.pd = pd->handle;
  request.attr = ToAbi(*attr);
  ah->session = SessionOf(pd->context);
  const int error = ah->session->client.Call(ROCI_ABI_CREATE_AH, &request, &response);
  if (error != 0) {
    Free(ah);
    return Fail(error);
  }
  ah->ah.context = pd->context;
  ah->ah.pd = pd;
  ah->ah.handle = response.handle;
  AcquireDomain(pd);
  return &ah->ah;
}

int DestroyAh(ibv_ah* ibah) {
  auto* ah = reinterpret_cast<Ah*>(ibah);
  const int error = CallWithHandle(ah->session->client, ROCI_ABI_DESTROY_AH, ibah->handle);
  if (!IsGone(ah->session, error)) return error;
  ReleaseDomain(ibah->pd);
  Free(ah);
  return 0;
}

}  // namespace roci::provider
