// Address handles. A destroyed one is parked for the next with the same address vector.
#include "verbs_provider/base/allocate.h"
#include "verbs_provider/session/path_wait.h"
#include "verbs_provider/verbs/domain.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/qp_attributes.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

int RequestAh(VerbsSession* session, const AhKey& key, uint32_t* handle) {
  roci_abi_create_ah_request request = {};
  roci_abi_handle_response response = {};
  request.pd = key.pd;
  request.attr = key.attr;
  const int error = CallWithPath(session, ROCI_ABI_CREATE_AH, &request, &response);
  *handle = response.handle;
  return error;
}

// 0 or an errno.
int ObtainAh(VerbsSession* session, const AhKey& key, ParkedAhs::Parked* parked) {
  if (!session->alive()) return EIO;
  // Read first: the daemon's answer is at least as new.
  parked->paths = session->bells.paths();
  if (session->parked_ahs.Take(key, parked->paths, &parked->handle)) return 0;
  const int error = RequestAh(session, key, &parked->handle);
  if (error != ENOMEM) return error;
  // Parked address handles count towards the limit.
  DestroyParkedAhs(session, ROCI_ABI_NO_HANDLE);
  return RequestAh(session, key, &parked->handle);
}

}  // namespace

void DestroyParkedAhs(VerbsSession* session, uint32_t pd) {
  if (!session->alive()) return;
  for (;;) {
    const uint32_t handle = session->parked_ahs.Remove(pd);
    if (handle == ROCI_ABI_NO_HANDLE) return;
    CallWithHandle(session->client, ROCI_ABI_DESTROY_AH, handle);
  }
}

ibv_ah* CreateAh(ibv_pd* pd, ibv_ah_attr* attr) {
  auto* ah = Allocate<Ah>();
  if (ah == nullptr) return nullptr;
  ah->session = SessionOf(pd->context);
  ah->key = {pd->handle, ToAbi(*attr)};
  const int error = ObtainAh(ah->session, ah->key, &ah->in_daemon);
  if (error != 0) {
    Free(ah);
    return Fail(error);
  }
  ah->ah.context = pd->context;
  ah->ah.pd = pd;
  ah->ah.handle = ah->in_daemon.handle;
  AcquireDomain(pd);
  return &ah->ah;
}

int DestroyAh(ibv_ah* ibah) {
  auto* ah = reinterpret_cast<Ah*>(ibah);
  VerbsSession* session = ah->session;
  if (session->alive()) {
    const uint32_t removed =
        session->parked_ahs.Park(ah->key, ah->in_daemon, session->bells.paths());
    const int error = removed == ROCI_ABI_NO_HANDLE
                          ? 0
                          : CallWithHandle(session->client, ROCI_ABI_DESTROY_AH, removed);
    if (removed == ah->in_daemon.handle && !IsGone(session, error)) return error;
  }
  ReleaseDomain(ibah->pd);
  Free(ah);
  return 0;
}

}  // namespace roci::provider
