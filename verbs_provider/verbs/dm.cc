// Device memory: a memfd of the daemon that this process also maps, so that copies do not involve
// the daemon.
#include <algorithm>
#include <cstring>

#include "verbs_provider/base/allocate.h"
#include "verbs_provider/base/linked_list.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

// Offsets and lengths of copies are multiples of this many bytes, as on existing adapters.
constexpr uint64_t kWord = 4;

Dm* ToDm(ibv_dm* dm) { return reinterpret_cast<Dm*>(dm); }

// 0 or an errno: EIO in a forked child, which does not have the mapping; EFAULT or EINVAL for an
// invalid range.
int CheckCopy(const Dm* dm, uint64_t offset, size_t length) {
  if (dm->session->inherited()) return EIO;
  if (offset > dm->length || length > dm->length - offset) return EFAULT;
  return offset % kWord != 0 || length % kWord != 0 ? EINVAL : 0;
}

int CopyToDm(ibv_dm* ibdm, uint64_t offset, const void* from, size_t length) {
  const Dm* dm = ToDm(ibdm);
  const int error = CheckCopy(dm, offset, length);
  if (error == 0) memcpy(dm->data + offset, from, length);
  return error;
}

int CopyFromDm(void* to, ibv_dm* ibdm, uint64_t offset, size_t length) {
  const Dm* dm = ToDm(ibdm);
  const int error = CheckCopy(dm, offset, length);
  if (error == 0) memcpy(to, dm->data + offset, length);
  return error;
}

void Fill(ibv_context* context, uint32_t handle, Dm* dm) {
  dm->dm.context = context;
  dm->dm.memcpy_to_dm = CopyToDm;
  dm->dm.memcpy_from_dm = CopyFromDm;
  dm->dm.comp_mask = IBV_DM_MASK_HANDLE;
  dm->dm.handle = handle;
}

void AddToSession(VerbsSession* session, Dm* dm) {
  const RegistrationLock lock;
  AddToList(session->device_memories, dm);
}

void RemoveFromSession(Dm* dm) {
  const RegistrationLock lock;
  RemoveFromList(dm->session->device_memories, dm);
}

}  // namespace

ibv_dm* AllocDm(ibv_context* context, ibv_alloc_dm_attr* attr) {
  if (attr == nullptr || attr->comp_mask != 0) return Fail(EINVAL);
  auto* dm = Allocate<Dm>();
  if (dm == nullptr) return nullptr;
  VerbsSession* session = SessionOf(context);
  roci_abi_alloc_dm_request request = {};
  roci_abi_alloc_dm_response response = {};
  ReceivedFds fds;
  request.length = attr->length;
  request.log_align = attr->log_align_req;
  int error = session->client.Call(ROCI_ABI_ALLOC_DM, &request, &response, nullptr, &fds);
  if (error == 0) error = dm->memory.Map(fds.at(0), response.memory_size);
  if (error == 0 && dm->memory.size < attr->length) error = EPROTO;
  if (error != 0) {
    if (response.head.error == 0 && response.handle != 0) {
      CallWithHandle(session->client, ROCI_ABI_FREE_DM, response.handle);
    }
    dm->memory.Unmap();
    Free(dm);
    return Fail(error);
  }
  dm->session = session;
  dm->data = dm->memory.data;
  dm->length = attr->length;
  Fill(context, response.handle, dm);
  AddToSession(session, dm);
  return &dm->dm;
}

int FreeDm(ibv_dm* ibdm) {
  Dm* dm = ToDm(ibdm);
  VerbsSession* session = PresentSessionOf(ibdm->context);
  if (dm->imported) return EINVAL;  // ibv_unimport_dm frees it
  const int error = CallWithHandle(session->client, ROCI_ABI_FREE_DM, ibdm->handle);
  if (!IsGone(session, error)) return error;
  RemoveFromSession(dm);
  UnmapOwn(dm->session, &dm->memory);
  Free(dm);
  return 0;
}

// Maps existing device memory again. The caller unimports it before the memory is freed
// (ibv_import_dm(3)).
ibv_dm* ImportDm(ibv_context* context, uint32_t handle) {
  auto* dm = Allocate<Dm>();
  if (dm == nullptr) return nullptr;
  roci_abi_handle_request request = {};
  roci_abi_import_dm_response response = {};
  ReceivedFds fds;
  request.handle = handle;
  VerbsSession* session = SessionOf(context);
  int error = session->client.Call(ROCI_ABI_IMPORT_DM, &request, &response, nullptr, &fds);
  if (error == 0) error = dm->memory.Map(fds.at(0), response.memory_size);
  if (error == 0 && dm->memory.size < response.length) error = EPROTO;
  if (error != 0) {
    dm->memory.Unmap();
    Free(dm);
    return Fail(error);
  }
  dm->session = session;
  dm->data = dm->memory.data;
  dm->length = response.length;
  dm->imported = true;
  Fill(context, handle, dm);
  return &dm->dm;
}

void UnimportDm(ibv_dm* ibdm) {
  Dm* dm = ToDm(ibdm);
  UnmapOwn(dm->session, &dm->memory);
  Free(dm);
}

}  // namespace roci::provider
