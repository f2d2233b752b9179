// Protection domains, parent domains and thread domains.
#include "verbs_provider/allocate.h"
#include "verbs_provider/objects.h"
#include "verbs_provider/verbs_ops.h"

namespace roci::provider {
namespace {

Pd* ToPd(ibv_pd* pd) { return reinterpret_cast<Pd*>(pd); }
Td* ToTd(ibv_td* td) { return reinterpret_cast<Td*>(td); }

void FreeParentDomain(Pd* domain) {
  --domain->parent->children;
  if (domain->td != nullptr) --domain->td->users;
  Free(domain);
}

}  // namespace

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

// Stands for its protection domain wherever one is asked for: the daemon knows only that one.
ibv_pd* AllocParentDomain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  if (attr->pd == nullptr || attr->pd->context != context) return Fail(EINVAL);
  // Rings are the daemon's memory: an allocator of the app's cannot give it.
  const uint32_t mask = attr->comp_mask & ~uint32_t{IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT};
  if (mask != 0) return Fail(EOPNOTSUPP);
  auto* domain = Allocate<Pd>();
  if (domain == nullptr) return nullptr;
  Pd* pd = ToPd(attr->pd);
  domain->parent = pd->parent != nullptr ? pd->parent : pd;
  domain->td = attr->td != nullptr ? ToTd(attr->td) : nullptr;
  ++domain->parent->children;
  if (domain->td != nullptr) ++domain->td->users;
  domain->pd.context = context;
  domain->pd.handle = attr->pd->handle;
  return &domain->pd;
}

int DeallocPd(ibv_pd* ibpd) {
  Pd* pd = ToPd(ibpd);
  if (pd->children != 0) return EBUSY;
  if (pd->parent != nullptr) {
    FreeParentDomain(pd);
    return 0;
  }
  Session* session = SessionOf(ibpd->context);
  const int error = CallWithHandle(session->client, ROCI_ABI_DEALLOC_PD, ibpd->handle);
  if (!IsGone(session, error)) return error;
  Free(pd);
  return 0;
}

// Another handle for a protection domain of the same session (ibv_import_pd(3)). The daemon judges
// the number when it is used.
ibv_pd* ImportPd(ibv_context* context, uint32_t handle) {
  auto* pd = Allocate<Pd>();
  if (pd == nullptr) return nullptr;
  pd->pd.context = context;
  pd->pd.handle = handle;
  return &pd->pd;
}

void UnimportPd(ibv_pd* pd) { Free(ToPd(pd)); }

ibv_td* AllocTd(ibv_context* context, ibv_td_init_attr* attr) {
  if (attr->comp_mask != 0) return Fail(EOPNOTSUPP);
  auto* td = Allocate<Td>();
  if (td == nullptr) return nullptr;
  td->td.context = context;
  return &td->td;
}

int DeallocTd(ibv_td* ibtd) {
  Td* td = ToTd(ibtd);
  if (td->users != 0) return EBUSY;
  Free(td);
  return 0;
}

}  // namespace roci::provider
