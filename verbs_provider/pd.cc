// Protection domains.
#include "verbs_provider/allocate.h"
#include "verbs_provider/objects.h"
#include "verbs_provider/verbs_ops.h"

namespace roci::provider {

ibv_pd* AllocPd(ibv_context* context) {
  auto* pd = Allocate<Pd>();
  if (pd == nullptr) return nullptr;
  roci_abi_plain_request request = {};
  roci_abi_handle_response response = {};
  const int error = SessionOf(context)->client.Call(ROCI_ABI_ALLOC_PD, &request, &response);
  if (error != 0) {
    Free(pd);
    return Fail(error);
  }
  pd->pd.context = context;
  pd->pd.handle = response.handle;
  return &pd->pd;
}

int DeallocPd(ibv_pd* pd) {
  Session* session = SessionOf(pd->context);
  const int error = CallWithHandle(session->client, ROCI_ABI_DEALLOC_PD, pd->handle);
  if (!IsGone(session, error)) return error;
  Free(reinterpret_cast<Pd*>(pd));
  return 0;
}

}  // namespace roci::provider
