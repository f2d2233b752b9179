// The plugin's implementation of rocidv.h: regions that work requests register.
#include "verbs_provider/base/allocate.h"
#include "verbs_provider/rings/send_entry.h"
#include "verbs_provider/rocidv/direct_list.h"
#include "verbs_provider/rocidv/direct_table.h"
#include "verbs_provider/verbs/domain.h"

namespace roci::provider {
namespace {

int QueryDevice(ibv_context*, rocidv_device_attr* attr) {
  attr->max_mr_entries = ROCI_ABI_MAX_LIST_RUNS;
  attr->max_protection_entries = ROCI_ABI_MAX_LIST_RUNS;
  attr->sig_block_sizes = ROCIDV_SIG_BLOCK_512 | ROCIDV_SIG_BLOCK_520 | ROCIDV_SIG_BLOCK_4048 |
                          ROCIDV_SIG_BLOCK_4096 | ROCIDV_SIG_BLOCK_4160;
  attr->flush_types = ROCIDV_FLUSH_GLOBAL | ROCIDV_FLUSH_PERSISTENT;
  attr->sig_guards = 1u << ROCIDV_SIG_CRC | 1u << ROCIDV_SIG_CHECKSUM;
  return 0;
}

int Call(ListMr* list, roci_abi_alloc_list_mr_response* response, ReceivedFds* fds) {
  SessionClient& client = list->session->client;
  if (!list->has_signature) {
    roci_abi_alloc_list_mr_request request = {};
    request.pd = list->mr.pd->handle;
    request.max_runs = list->mr.max_entries;
    return client.Call(ROCI_ABI_ALLOC_LIST_MR, &request, response, nullptr, fds);
  }
  roci_abi_alloc_signature_mr_request request = {};
  request.pd = list->mr.pd->handle;
  request.max_runs = list->mr.max_entries;
  request.max_protection_runs = list->mr.max_protection_entries;
  return client.Call(ROCI_ABI_ALLOC_SIGNATURE_MR, &request, response, nullptr, fds);
}

// Sets the pointers into the list's memory. False if it is too small.
bool FindParts(ListMr* list) {
  uint64_t at = 0;
  if (list->has_signature) {
    list->signature = list->memory.At<roci_abi_signature>(0);
    if (list->signature == nullptr) return false;
    at += sizeof(roci_abi_signature);
  }
  list->runs = list->memory.At<roci_abi_sge>(at, list->mr.max_entries);
  at += list->mr.max_entries * sizeof(roci_abi_sge);
  list->protection = list->memory.At<roci_abi_sge>(at, list->mr.max_protection_entries);
  return list->runs != nullptr && list->protection != nullptr;
}

int Create(ListMr* list) {
  roci_abi_alloc_list_mr_response response = {};
  ReceivedFds fds;
  int error = Call(list, &response, &fds);
  if (error != 0 && error != EMFILE) return error;
  if (error == 0) error = list->memory.Map(fds.at(0), response.memory_size);
  if (error == 0 && !FindParts(list)) error = EPROTO;
  if (error != 0) {
    if (response.head.error == 0) {
      CallWithHandle(list->session->client, ROCI_ABI_FREE_LIST_MR, response.handle);
    }
    list->memory.Unmap();
    return error;
  }
  list->handle = response.handle;
  list->mr.lkey = list->mr.rkey = response.key;
  return 0;
}

}  // namespace

ListMr* MakeListMr(ibv_pd* pd, uint32_t max_entries, bool has_signature,
                   uint32_t max_protection_entries) {
  auto* list = Allocate<ListMr>();
  if (list == nullptr) return nullptr;
  list->session = SessionOf(pd->context);
  list->mr.context = pd->context;
  list->mr.pd = pd;
  list->mr.max_entries = max_entries;
  list->mr.max_protection_entries = max_protection_entries;
  list->has_signature = has_signature;
  const int error = Create(list);
  if (error != 0) {
    Free(list);
    return Fail(error);
  }
  AcquireDomain(pd);
  return list;
}

namespace {

rocidv_mr* AllocMr(ibv_pd* pd, uint32_t max_entries) {
  ListMr* list = MakeListMr(pd, max_entries, false, 0);
  return list != nullptr ? &list->mr : nullptr;
}

int DeregMr(rocidv_mr* mr) {
  ListMr* list = ToListMr(mr);
  VerbsSession* session = list->session;
  const int error = CallWithHandle(session->client, ROCI_ABI_FREE_LIST_MR, list->handle);
  if (!IsGone(session, error)) return error;
  UnmapOwn(session, &list->memory);
  ReleaseDomain(mr->pd);
  Free(list);
  return 0;
}

// Fills the list; `run(i)` returns run i. 0 or EINVAL.
template <class RunAt>
int Map(ListMr* list, uint32_t count, uint64_t iova, RunAt&& run) {
  if (list->has_signature || count == 0 || count > list->mr.max_entries) return EINVAL;
  const uint64_t total = BytesOf(count, run);
  if (!IsRange(iova, total)) return EINVAL;
  for (uint32_t i = 0; i < count; ++i) list->runs[i] = run(i);
  list->count = count;
  list->mr.iova = iova;
  list->mr.length = total;
  return 0;
}

int MapMrSg(rocidv_mr* mr, const ibv_sge* runs, uint32_t count, uint64_t iova) {
  return Map(ToListMr(mr), count, iova, [runs](uint32_t i) { return ToRun(runs[i]); });
}

int MapMrPages(rocidv_mr* mr, uint32_t lkey, const uint64_t* pages, uint32_t count,
               uint64_t page_size, uint64_t offset, uint64_t length, uint64_t iova) {
  constexpr uint64_t kSmallestPage = 4096, kLargestPage = uint64_t{1} << 31;
  if (page_size < kSmallestPage || page_size > kLargestPage || (page_size & (page_size - 1)) != 0 ||
      count == 0 || count > mr->max_entries || offset >= page_size || length == 0) {
    return EINVAL;
  }
  // The range must end in the last page.
  const uint64_t end = offset + length;
  if (end < offset || end > count * page_size || end <= (count - 1) * page_size) return EINVAL;
  for (uint32_t i = 0; i < count; ++i) {
    if ((pages[i] & (page_size - 1)) != 0) return EINVAL;
  }
  return Map(ToListMr(mr), count, iova, [&](uint32_t i) {
    const uint64_t from = i == 0 ? offset : 0;
    const uint64_t to = i + 1 == count ? end - i * page_size : page_size;
    return roci_abi_sge{pages[i] + from, static_cast<uint32_t>(to - from), lkey};
  });
}

void UpdateRkey(rocidv_mr* mr, uint8_t variant) {
  mr->lkey = mr->rkey = (mr->rkey & ~uint32_t{0xFF}) | variant;
}

// Fills in a begun entry. 0 or EINVAL.
int Put(roci_abi_send_wqe* entry, const ListMr& list, unsigned access) {
  constexpr unsigned kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  constexpr unsigned kChanges = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  const unsigned rights = list.has_signature ? kRights & ~IBV_ACCESS_REMOTE_ATOMIC : kRights;
  if (list.count == 0 || (access & ~rights) != 0 ||
      ((access & kChanges) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
    return EINVAL;
  }
  entry->remote_va = list.mr.iova;
  entry->u.list.runs = list.count;
  entry->u.list.list = list.handle;
  entry->u.list.access = access;
  entry->u.list.new_key = list.mr.rkey;
  return 0;
}

// As BeginEntry.
roci_abi_send_wqe* Begin(Qp* qp, uint32_t index, uint64_t wr_id, unsigned flags, int* error) {
  return BeginEntry(qp->sq, index, qp->sq.opcodes.rocidv, ROCI_ABI_WR_REG_LIST, wr_id, flags,
                    error);
}

void WrRegMr(ibv_qp_ex* qpx, const rocidv_mr* mr, unsigned access) {
  auto* qp = reinterpret_cast<Qp*>(qpx);
  SendBuilder& builder = qp->builder;
  if (builder.error != 0) return;
  builder.entry = Begin(qp, builder.next, qpx->wr_id, qpx->wr_flags, &builder.error);
  if (builder.entry == nullptr) return;
  ++builder.next;
  builder.error = Put(builder.entry, *ToListMr(mr), access);
}

int PostRegMr(ibv_qp* ibqp, const rocidv_mr* mr, unsigned access, uint64_t wr_id,
              unsigned send_flags) {
  Qp* qp = ToQp(ibqp);
  if (!qp->session->alive()) return EIO;
  int error = qp->send_refusal.load(std::memory_order_relaxed);
  if (error != 0) return PostResult(error);
  SendQueue& sq = qp->sq;
  const SpinGuard guard(sq.lock);
  roci_abi_send_wqe* entry = Begin(qp, sq.head, wr_id, send_flags, &error);
  if (entry == nullptr) return error;
  error = Put(entry, *ToListMr(mr), access);
  if (error != 0) return error;
  Publish(sq.shared, ++sq.head, sq.bells, sq.handle);
  return 0;
}

}  // namespace
}  // namespace roci::provider

extern "C" __attribute__((visibility("default"))) const rocidv_table rocidv_table_1;
const rocidv_table rocidv_table_1 = {
    .size = sizeof(rocidv_table),
    .query_device = roci::provider::QueryDevice,
    .alloc_mr = roci::provider::AllocMr,
    .dereg_mr = roci::provider::DeregMr,
    .map_mr_sg = roci::provider::MapMrSg,
    .map_mr_pages = roci::provider::MapMrPages,
    .update_rkey = roci::provider::UpdateRkey,
    .wr_reg_mr = roci::provider::WrRegMr,
    .post_reg_mr = roci::provider::PostRegMr,
    .alloc_mr_integrity = roci::provider::AllocMrIntegrity,
    .map_mr_sg_integrity = roci::provider::MapMrSgIntegrity,
    .check_mr_status = roci::provider::CheckMrStatus,
    .wr_flush = roci::provider::WrFlush,
    .post_flush = roci::provider::PostFlush,
};
