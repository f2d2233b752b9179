// Protection domains, parent domains and thread domains.
#include <cstdint>
#include <cstdlib>

#include "verbs_provider/base/allocate.h"
#include "verbs_provider/verbs/domain.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

Pd* ToPd(ibv_pd* pd) { return reinterpret_cast<Pd*>(pd); }
Td* ToTd(ibv_td* td) { return reinterpret_cast<Td*>(td); }

// At least a pointer's alignment, because the program's allocator may call posix_memalign(3).
size_t AtLeastPointers(size_t alignment) {
  return alignment < sizeof(void*) ? sizeof(void*) : alignment;
}

void FreeParentDomain(Pd* domain) {
  --domain->parent->ref_count;
  if (domain->td != nullptr) --domain->td->ref_count;
  Free(domain);
}

}  // namespace

void* AllocateDomainMemory(Pd* domain, size_t size, size_t alignment, DomainMemory what,
                           MemorySource* source) {
  void* memory = IBV_ALLOCATOR_USE_DEFAULT;
  alignment = AtLeastPointers(alignment);
  if (domain != nullptr && domain->allocate != nullptr) {
    memory = domain->allocate(&domain->pd, domain->app_context, size, alignment,
                              static_cast<uint64_t>(what));
  }
  source->domain = domain;
  source->from_app = memory != IBV_ALLOCATOR_USE_DEFAULT;
  if (!source->from_app && posix_memalign(&memory, alignment, size) != 0) memory = nullptr;
  if (memory == nullptr) return Fail(ENOMEM);
  if (domain != nullptr) ++domain->ref_count;
  return memory;
}

void FreeDomainMemory(const MemorySource& source, void* memory, DomainMemory what) {
  if (source.from_app) {
    source.domain->release(&source.domain->pd, source.domain->app_context, memory,
                           static_cast<uint64_t>(what));
  } else {
    free(memory);
  }
  if (source.domain != nullptr) --source.domain->ref_count;
}

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

// Has the handle of its protection domain: the daemon has no parent domains.
ibv_pd* AllocParentDomain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  if (attr->pd == nullptr || attr->pd->context != context) return Fail(EINVAL);
  constexpr uint32_t kAllocators = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  constexpr uint32_t kContext = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if ((attr->comp_mask & ~(kAllocators | kContext)) != 0) return Fail(EOPNOTSUPP);
  const bool allocators = (attr->comp_mask & kAllocators) != 0;
  if (allocators && (attr->alloc == nullptr || attr->free == nullptr)) return Fail(EINVAL);
  auto* domain = Allocate<Pd>();
  if (domain == nullptr) return nullptr;
  if (allocators) {
    domain->allocate = attr->alloc;
    domain->release = attr->free;
  }
  if ((attr->comp_mask & kContext) != 0) domain->app_context = attr->pd_context;
  Pd* pd = ToPd(attr->pd);
  domain->parent = pd->parent != nullptr ? pd->parent : pd;
  domain->td = attr->td != nullptr ? ToTd(attr->td) : nullptr;
  ++domain->parent->ref_count;
  if (domain->td != nullptr) ++domain->td->ref_count;
  domain->pd.context = context;
  domain->pd.handle = attr->pd->handle;
  return &domain->pd;
}

int DeallocPd(ibv_pd* ibpd) {
  Pd* pd = ToPd(ibpd);
  if (pd->ref_count != 0) return EBUSY;
  if (pd->parent != nullptr) {
    FreeParentDomain(pd);
    return 0;
  }
  VerbsSession* session = PresentSessionOf(ibpd->context);
  DestroyParkedAhs(session, ibpd->handle);
  const int error = CallWithHandle(session->client, ROCI_ABI_DEALLOC_PD, ibpd->handle);
  if (!IsGone(session, error)) return error;
  Free(pd);
  return 0;
}

// Another ibv_pd for a protection domain of this session, or of a session that shares its context
// (ibv_import_pd(3)).
ibv_pd* ImportPd(ibv_context* context, uint32_t handle) {
  auto* pd = Allocate<Pd>();
  if (pd == nullptr) return nullptr;
  const int error = CallWithHandle(SessionOf(context)->client, ROCI_ABI_IMPORT_PD, handle);
  if (error != 0) {
    Free(pd);
    return Fail(error);
  }
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
  if (td->ref_count != 0) return EBUSY;
  Free(td);
  return 0;
}

}  // namespace roci::provider
