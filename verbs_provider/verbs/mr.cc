// Memory regions: registration, re-registration and deregistration, and import.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "verbs_provider/base/allocate.h"
#include "verbs_provider/memory/app_memory.h"
#include "verbs_provider/memory/convert.h"
#include "verbs_provider/verbs/domain.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

constexpr int kRemoteChanges = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
// IBV_ACCESS_FLUSH_GLOBAL and IBV_ACCESS_FLUSH_PERSISTENT, which Debian's headers do not have.
constexpr int kAccessFlushGlobal = 1 << 8;
constexpr int kAccessFlushPersistent = 1 << 9;
constexpr int kServedAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                              IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                              IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_HUGETLB |
                              IBV_ACCESS_ON_DEMAND | kAccessFlushGlobal | kAccessFlushPersistent;
// Hints that the device may ignore. libibverbs removes them unless the kernel supports them.
constexpr unsigned kOptionalAccess = IBV_ACCESS_OPTIONAL_RANGE;

int CheckAccess(int access) {
  const int known = kServedAccess | static_cast<int>(kOptionalAccess);
  // Remote write and atomic access require local write access (IBTA vol 1, 10.6.3.1).
  const bool lacks_local = (access & kRemoteChanges) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0;
  // Whether on-demand memory is persistent is unknown at registration.
  constexpr int kContradiction = IBV_ACCESS_ON_DEMAND | kAccessFlushPersistent;
  const bool contradicts = (access & kContradiction) == kContradiction;
  return (access & ~known) != 0 || lacks_local || contradicts ? EINVAL : 0;
}

// Whether the daemon needs to write to the memory. It can flush only memory that it may write.
bool NeedsWrite(int access) {
  return (access & (IBV_ACCESS_LOCAL_WRITE | kRemoteChanges | kAccessFlushPersistent)) != 0;
}

// A region's memory in the ABI's terms, with the descriptors to send.
struct DescribedMemory {
  uint32_t extent_count = 0;
  roci_abi_extent extents[ROCI_ABI_MAX_EXTENTS] = {};
  FdsToSend fds;
};

uint32_t IndexOf(int fd, FdsToSend* fds) {
  uint32_t i = 0;
  while (i < fds->count && fds->fds[i] != fd) ++i;
  if (i == fds->count) fds->fds[fds->count++] = fd;
  return i;
}

roci_abi_extent ToAbi(const MemoryExtent& extent, bool writable, FdsToSend* fds) {
  roci_abi_extent abi = {};
  abi.va = extent.va;
  abi.length = extent.length;
  abi.kind = ROCI_ABI_EXTENT_PROCESS_VM;
  // A file that the daemon may not map for writing is useless for a writable region.
  if (extent.kind == ExtentKind::kProcessVm || (writable && !extent.writable)) return abi;
  abi.file_offset = extent.file_offset;
  if (extent.kind == ExtentKind::kMapFiles) {
    abi.kind = ROCI_ABI_EXTENT_MAP_FILES;
    abi.map_start = extent.vma_begin;
    abi.map_end = extent.vma_end;
  } else {
    abi.kind = ROCI_ABI_EXTENT_FD;
    abi.fd_index = IndexOf(extent.fd, fds);
  }
  return abi;
}

static_assert(MemoryExtents::kCapacity <= ROCI_ABI_MAX_EXTENTS);

DescribedMemory Describe(const MemoryExtents& extents, bool writable) {
  DescribedMemory described;
  described.extent_count = extents.count;
  for (uint32_t i = 0; i < extents.count; ++i) {
    described.extents[i] = ToAbi(extents.items[i], writable, &described.fds);
  }
  return described;
}

// Whether posts may copy from the memory. Not if a file is mapped: other processes may truncate it,
// and the copy would raise SIGBUS in the program, where the daemon reports an error completion.
bool MayCopyAtPost(const MemoryExtents& extents) {
  return std::all_of(extents.items, extents.items + extents.count, [](const MemoryExtent& e) {
    return e.kind == ExtentKind::kProcessVm || e.kind == ExtentKind::kConverted;
  });
}

// As Linux requires of every device, because pages are translated as a whole.
bool HaveSameOffset(uint64_t one, uint64_t other) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return ((one ^ other) & (page - 1)) == 0;
}

uint64_t IovaOf(uint64_t iova, int access) {
  return (access & IBV_ACCESS_ZERO_BASED) != 0 ? 0 : iova;
}

template <class Request>
void PutMemory(const DescribedMemory& described, Request* request) {
  request->extent_count = described.extent_count;
  request->fd_count = described.fds.count;
  std::copy_n(described.extents, described.extent_count, request->extents);
}

void AddToRegions(VerbsSession* session, Mr* mr) {
  mr->next = session->regions;
  mr->link = &session->regions;
  if (mr->next != nullptr) mr->next->link = &mr->next;
  session->regions = mr;
}

void RemoveFromRegions(const Mr* mr) {
  *mr->link = mr->next;
  if (mr->next != nullptr) mr->next->link = mr->link;
}

// Stores the handle and keys that the daemon has granted.
void SetKeys(VerbsSession* session, Mr* mr, const roci_abi_reg_mr_response& response) {
  ibv_mr& region = mr->vmr.ibv_mr;
  region.handle = response.handle;
  region.lkey = response.lkey;
  region.rkey = response.rkey;
  if (mr->may_copy) {
    session->keys.Add(region.lkey, region.pd->handle, mr->iova,
                      reinterpret_cast<uintptr_t>(region.addr), region.length);
  }
}

int Register(VerbsSession* session, Mr* mr, const RegistrationLock& lock) {
  const ibv_mr& region = mr->vmr.ibv_mr;
  const bool writable = NeedsWrite(mr->vmr.access);
  roci_abi_reg_mr_request request = {};
  request.pd = region.pd->handle;
  request.access = static_cast<uint32_t>(mr->vmr.access);
  request.start = reinterpret_cast<uintptr_t>(region.addr);
  request.length = region.length;
  request.iova = mr->iova;
  if (!session->alive()) return EIO;
  MemoryExtents extents;
  const bool on_demand = (mr->vmr.access & IBV_ACCESS_ON_DEMAND) != 0;
  int error = 0;
  if (request.length != 0) {  // a region of length 0 has no memory; its key is for empty messages
    error = AcquireMemory(lock, request.start, request.length, writable, on_demand,
                          session->memory_policy, &extents, &mr->held);
  }
  if (error != 0) return error;
  const DescribedMemory described = Describe(extents, writable);
  PutMemory(described, &request);
  roci_abi_reg_mr_response response = {};
  error = session->client.Call(ROCI_ABI_REG_MR, &request, &response, &described.fds);
  // On-demand memory may have holes.
  mr->may_copy = !on_demand && MayCopyAtPost(extents);
  CloseExtents(&extents);
  if (error != 0) {
    ReleaseMemory(lock, &mr->held);
    return error;
  }
  SetKeys(session, mr, response);
  AddToRegions(session, mr);
  return 0;
}

// Changes `mr` to `wanted`, whose `held` is empty. 0 or an errno; changes `mr` only on success.
int Reregister(VerbsSession* session, Mr* mr, Mr wanted, uint32_t flags,
               const RegistrationLock& lock) {
  const ibv_mr& region = wanted.vmr.ibv_mr;
  const bool writable = NeedsWrite(wanted.vmr.access);
  // A new access right may require another kind of extent.
  const bool new_right = (writable && !NeedsWrite(mr->vmr.access)) ||
                         (wanted.vmr.access & ~mr->vmr.access & kAccessFlushPersistent) != 0;
  // A region of length 0 has no memory.
  const bool describe =
      (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0 || (new_right && region.length != 0);
  roci_abi_rereg_mr_request request = {};
  request.handle = region.handle;
  request.flags = flags | (describe ? IBV_REREG_MR_CHANGE_TRANSLATION : 0);
  request.pd = region.pd->handle;
  request.access = static_cast<uint32_t>(wanted.vmr.access);
  request.start = reinterpret_cast<uintptr_t>(region.addr);
  request.length = region.length;
  request.iova = wanted.iova;
  if (!session->alive()) return EIO;
  MemoryExtents extents;
  DescribedMemory described;
  if (describe) {
    const int error = AcquireMemory(lock, request.start, request.length, writable, false,
                                    session->memory_policy, &extents, &wanted.held);
    if (error != 0) return error;
    described = Describe(extents, writable);
    wanted.may_copy = MayCopyAtPost(extents);
  }
  PutMemory(described, &request);
  roci_abi_reg_mr_response response = {};
  const int error = session->client.Call(ROCI_ABI_REREG_MR, &request, &response, &described.fds);
  CloseExtents(&extents);
  if (error != 0) {
    ReleaseMemory(lock, &wanted.held);
    return error;
  }
  session->keys.Remove(mr->vmr.ibv_mr.lkey);
  if (describe) {
    ReleaseMemory(lock, &mr->held);
  } else {
    wanted.held = mr->held;
  }
  *mr = wanted;
  SetKeys(session, mr, response);
  return 0;
}

}  // namespace

ibv_mr* RegMr(ibv_pd* pd, void* address, size_t length, uint64_t iova, int access) {
  const int refusal = CheckAccess(access);
  if (refusal != 0) return Fail(refusal);
  if (!HaveSameOffset(reinterpret_cast<uintptr_t>(address), iova)) return Fail(EINVAL);
  auto* mr = Allocate<Mr>();
  if (mr == nullptr) return nullptr;
  mr->vmr.mr_type = IBV_MR_TYPE_MR;
  mr->vmr.access = access;
  mr->vmr.ibv_mr.context = pd->context;
  mr->vmr.ibv_mr.pd = pd;
  mr->vmr.ibv_mr.addr = address;
  mr->vmr.ibv_mr.length = length;
  mr->iova = IovaOf(iova, access);
  VerbsSession* session = SessionOf(pd->context);  // may open a session, so before the lock
  int error;
  {
    const RegistrationLock lock;
    error = Register(session, mr, lock);
  }
  if (error != 0) {
    Free(mr);
    return Fail(error);
  }
  AcquireDomain(pd);
  return &mr->vmr.ibv_mr;
}

int ReregMr(verbs_mr* vmr, int flags, ibv_pd* pd, void* address, size_t length, int access) {
  Mr* mr = ToMr(vmr);
  VerbsSession* session = SessionOf(vmr->ibv_mr.context);
  ibv_pd* const old_pd = vmr->ibv_mr.pd;
  const RegistrationLock lock;  // before the copy, which contains the list pointers
  Mr wanted = *mr;
  wanted.held = {};
  ibv_mr& region = wanted.vmr.ibv_mr;
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) region.pd = pd;
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) wanted.vmr.access = access;
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    region.addr = address;
    region.length = length;
    wanted.iova = IovaOf(reinterpret_cast<uintptr_t>(address), wanted.vmr.access);
  }
  int error = CheckAccess(wanted.vmr.access);
  if (region.pd == nullptr || SessionOf(region.pd->context) != session) error = EINVAL;
  // On-demand regions, device memory (which has no address) and DMA buffers cannot change.
  if (((mr->vmr.access | wanted.vmr.access) & IBV_ACCESS_ON_DEMAND) != 0 ||
      mr->vmr.ibv_mr.addr == nullptr || mr->vmr.mr_type == IBV_MR_TYPE_DMABUF_MR) {
    error = EOPNOTSUPP;
  }
  if (error == 0) error = Reregister(session, mr, wanted, static_cast<uint32_t>(flags), lock);
  // ibv_rereg_mr returns an ibv_rereg_mr_err_code; errno has the reason.
  if (error != 0) errno = error;
  if (error == 0 && (flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    ReleaseDomain(old_pd);
    AcquireDomain(pd);
  }
  return error;
}

namespace {

// Creates a region of memory that is not the program's.
template <class Request>
ibv_mr* MakeRegion(ibv_pd* pd, uint32_t command, Request* request, ibv_mr_type type,
                   unsigned access, size_t length, const FdsToSend* fds = nullptr) {
  auto* mr = Allocate<Mr>();
  if (mr == nullptr) return nullptr;
  VerbsSession* session = SessionOf(pd->context);
  roci_abi_reg_mr_response response = {};
  const RegistrationLock lock;
  const int error = session->client.Call(command, request, &response, fds);
  if (error != 0) {
    Free(mr);
    return Fail(error);
  }
  mr->vmr.mr_type = type;
  mr->vmr.access = static_cast<int>(access);
  mr->vmr.ibv_mr.context = pd->context;
  mr->vmr.ibv_mr.pd = pd;
  mr->vmr.ibv_mr.length = length;
  SetKeys(session, mr, response);
  AddToRegions(session, mr);
  AcquireDomain(pd);
  return &mr->vmr.ibv_mr;
}

}  // namespace

ibv_mr* AllocNullMr(ibv_pd* pd) {
  roci_abi_alloc_null_mr_request request = {};
  request.pd = pd->handle;
  return MakeRegion(pd, ROCI_ABI_ALLOC_NULL_MR, &request, IBV_MR_TYPE_NULL_MR,
                    IBV_ACCESS_LOCAL_WRITE, 0);
}

ibv_mr* RegDmMr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length, unsigned access) {
  if (SessionOf(dm->context) != SessionOf(pd->context)) return Fail(EINVAL);
  roci_abi_reg_dm_mr_request request = {};
  request.pd = pd->handle;
  request.dm = dm->handle;
  request.offset = offset;
  request.length = length;
  request.access = access;
  return MakeRegion(pd, ROCI_ABI_REG_DM_MR, &request, IBV_MR_TYPE_MR, access, length);
}

ibv_mr* RegDmaBufferMr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova, int fd,
                       int access) {
  if (fcntl(fd, F_GETFD) < 0) return Fail(EBADF);
  if (!HaveSameOffset(offset, iova)) return Fail(EINVAL);
  roci_abi_reg_dma_buffer_mr_request request = {};
  request.pd = pd->handle;
  request.access = static_cast<uint32_t>(access);
  request.offset = offset;
  request.length = length;
  request.iova = iova;
  FdsToSend fds;
  fds.fds[fds.count++] = fd;
  return MakeRegion(pd, ROCI_ABI_REG_DMA_BUFFER_MR, &request, IBV_MR_TYPE_DMABUF_MR,
                    static_cast<unsigned>(access), length, &fds);
}

namespace {

void FreeRegion(Mr* mr) {
  ReleaseDomain(mr->vmr.ibv_mr.pd);
  Free(mr);
}

}  // namespace

int DeregMr(verbs_mr* vmr) {
  Mr* mr = ToMr(vmr);
  VerbsSession* session = PresentSessionOf(vmr->ibv_mr.context);
  if (vmr->mr_type == IBV_MR_TYPE_IMPORTED_MR) return EINVAL;  // ibv_unimport_mr frees it
  if (session->inherited()) {                                  // the parent has the registration
    {
      const RegistrationLock lock;
      RemoveFromRegions(mr);
    }
    FreeRegion(mr);
    return 0;
  }
  {
    const RegistrationLock lock;
    const int error = CallWithHandle(session->client, ROCI_ABI_DEREG_MR, vmr->ibv_mr.handle);
    if (!IsGone(session, error)) return error;
    session->keys.Remove(vmr->ibv_mr.lkey);
    RemoveFromRegions(mr);
    ReleaseMemory(lock, &mr->held);
  }
  FreeRegion(mr);
  return 0;
}

// Another handle for a region of the same context (ibv_import_mr(3)), without its address.
ibv_mr* ImportMr(ibv_pd* pd, uint32_t handle) {
  auto* mr = Allocate<Mr>();
  if (mr == nullptr) return nullptr;
  roci_abi_handle_request request = {};
  roci_abi_import_mr_response response = {};
  request.handle = handle;
  const int error = SessionOf(pd->context)->client.Call(ROCI_ABI_IMPORT_MR, &request, &response);
  if (error != 0) {
    Free(mr);
    return Fail(error);
  }
  mr->vmr.mr_type = IBV_MR_TYPE_IMPORTED_MR;
  ibv_mr& region = mr->vmr.ibv_mr;
  region.context = pd->context;
  region.pd = pd;
  region.handle = handle;
  region.length = response.length;
  region.lkey = response.lkey;
  region.rkey = response.rkey;
  AcquireDomain(pd);
  return &region;
}

void UnimportMr(ibv_mr* mr) { FreeRegion(reinterpret_cast<Mr*>(mr)); }

}  // namespace roci::provider
