// Advice on on-demand regions (ibv_advise_mr(3)): populates pages. The daemon reaches on-demand
// memory by address and needs no preparation.
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

namespace roci::provider {
namespace {

const Mr* FindRegion(const VerbsSession* session, uint32_t lkey) {
  const Mr* mr = session->regions;
  while (mr != nullptr && mr->vmr.ibv_mr.lkey != lkey) mr = mr->next;
  return mr;
}

// Errors of ibv_advise_mr(3).
int Check(const ibv_pd* pd, const Mr* mr, const ibv_sge& sge, bool write) {
  if (mr == nullptr) return ENOENT;
  const ibv_mr& region = mr->vmr.ibv_mr;
  if (region.pd->handle != pd->handle) return EPERM;
  if ((mr->vmr.access & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
  if (write && (mr->vmr.access & IBV_ACCESS_LOCAL_WRITE) == 0) return EPERM;
  const uint64_t offset = sge.addr - mr->iova;
  return offset > region.length || sge.length > region.length - offset ? EFAULT : 0;
}

// Populates the pages of [va, va + length). 0, or EFAULT if a page cannot be populated.
int Populate(uint64_t va, uint64_t length, bool write) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t begin = va & ~(page - 1);
  void* start = reinterpret_cast<void*>(begin);
  if (length == 0) return 0;
  if (madvise(start, va + length - begin, write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) == 0) {
    return 0;
  }
  // Linux before 5.14 does not have the advice; the pages are populated at first access.
  return errno == EINVAL ? 0 : EFAULT;
}

}  // namespace

int AdviseMr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges,
             uint32_t count) {
  const bool write = advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  if ((flags & ~uint32_t{IB_UVERBS_ADVISE_MR_FLAG_FLUSH}) != 0 || count == 0) return EINVAL;
  if (advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH && !write &&
      advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) {
    return EOPNOTSUPP;
  }
  const bool faults = advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
  const bool now = faults && (flags & IB_UVERBS_ADVISE_MR_FLAG_FLUSH) != 0;
  const VerbsSession* session = SessionOf(pd->context);
  const RegistrationLock lock;
  for (uint32_t i = 0; i < count; ++i) {
    const int error = Check(pd, FindRegion(session, sges[i].lkey), sges[i], write);
    if (error != 0) return error;
  }
  // Without IB_UVERBS_ADVISE_MR_FLAG_FLUSH the advice is a hint and is ignored.
  for (uint32_t i = 0; now && i < count; ++i) {
    const Mr* mr = FindRegion(session, sges[i].lkey);
    const uint64_t va =
        reinterpret_cast<uintptr_t>(mr->vmr.ibv_mr.addr) + (sges[i].addr - mr->iova);
    const int error = Populate(va, sges[i].length, write);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace roci::provider
