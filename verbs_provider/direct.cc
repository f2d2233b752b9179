// The plugin's part of rocidv.h: regions that are registered by work requests.
#include "verbs_provider/abi/list_mr.h"
#include "verbs_provider/allocate.h"
#include "verbs_provider/direct_table.h"
#include "verbs_provider/objects.h"
#include "verbs_provider/send_entry.h"

namespace roci::provider {
namespace {

struct ListMr {
  rocidv_mr mr;  // first
  Session* session;
  uint32_t handle;
  uint32_t count;  // runs, as mapped last; 0: none
  SharedMapping memory;
  roci_abi_sge* runs;
};

ListMr* ToListMr(rocidv_mr* mr) { return reinterpret_cast<ListMr*>(mr); }
const ListMr* ToListMr(const rocidv_mr* mr) { return reinterpret_cast<const ListMr*>(mr); }

int QueryDevice(ibv_context*, rocidv_device_attr* attr) {
  attr->max_mr_entries = ROCI_ABI_MAX_LIST_RUNS;
  return 0;
}

int Create(ListMr* list, ibv_pd* pd, uint32_t max_entries) {
  roci_abi_alloc_list_mr_request request = {};
  roci_abi_alloc_list_mr_response response = {};
  ReceivedFds fds;
  SessionClient& client = list->session->client;
  request.pd = pd->handle;
  request.max_runs = max_entries;
  int error = client.Call(ROCI_ABI_ALLOC_LIST_MR, &request, &response, nullptr, &fds);
  if (error != 0 && error != EMFILE) return error;
  if (error == 0) error = list->memory.Map(fds.at(0), response.memory_size);
  if (error == 0) {
    list->runs = list->memory.At<roci_abi_sge>(0, max_entries);
    if (list->runs == nullptr) error = EPROTO;
  }
  if (error != 0) {
    if (response.head.error == 0) {
      CallWithHandle(client, ROCI_ABI_FREE_LIST_MR, response.handle);
    }
    list->memory.Unmap();
    return error;
  }
  list->handle = response.handle;
  list->mr.lkey = list->mr.rkey = response.key;
  return 0;
}

rocidv_mr* AllocMr(ibv_pd* pd, uint32_t max_entries) {
  auto* list = Allocate<ListMr>();
  if (list == nullptr) return nullptr;
  list->session = SessionOf(pd->context);
  const int error = Create(list, pd, max_entries);
  if (error != 0) {
    Free(list);
    return Fail(error);
  }
  list->mr.context = pd->context;
  list->mr.pd = pd;
  list->mr.max_entries = max_entries;
  return &list->mr;
}

int DeregMr(rocidv_mr* mr) {
  ListMr* list = ToListMr(mr);
  Session* session = list->session;
  const int error = CallWithHandle(session->client, ROCI_ABI_FREE_LIST_MR, list->handle);
  if (!IsGone(session, error)) return error;
  UnmapOwn(session, &list->memory);
  Free(list);
  return 0;
}

constexpr uint64_t kMaxBytes = uint64_t{1} << 46;

// `run(i)` gives number i.
template <class RunAt>
int Map(ListMr* list, uint32_t count, uint64_t iova, RunAt&& run) {
  if (count == 0 || count > list->mr.max_entries) return EINVAL;
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const roci_abi_sge element = run(i);
    if (element.length == 0) return EINVAL;
    total += element.length;
  }
  if (total > kMaxBytes || iova + (total - 1) < iova) return EINVAL;
  for (uint32_t i = 0; i < count; ++i) list->runs[i] = run(i);
  list->count = count;
  list->mr.iova = iova;
  list->mr.length = total;
  return 0;
}

int MapMrSg(rocidv_mr* mr, const ibv_sge* runs, uint32_t count, uint64_t iova) {
  return Map(ToListMr(mr), count, iova, [runs](uint32_t i) {
    return roci_abi_sge{runs[i].addr, runs[i].length, runs[i].lkey};
  });
}

int MapMrPages(rocidv_mr* mr, uint32_t lkey, const uint64_t* pages, uint32_t count,
               uint64_t page_size, uint64_t offset, uint64_t length, uint64_t iova) {
  constexpr uint64_t kLargestPage = uint64_t{1} << 31;
  if (page_size < 4096 || page_size > kLargestPage || (page_size & (page_size - 1)) != 0 ||
      count == 0 || count > mr->max_entries || offset >= page_size || length == 0) {
    return EINVAL;
  }
  // The range ends in the last page.
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
  if (list.count == 0 || (access & ~kRights) != 0 ||
      ((access & kChanges) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
    return EINVAL;
  }
  entry->remote_va = list.mr.iova;
  entry->u.bind.length = list.count;
  entry->u.bind.window = list.handle;
  entry->u.bind.access = access;
  entry->u.bind.new_key = list.mr.rkey;
  return 0;
}

// As BeginEntry, for an operation that no number of verbs stands for.
roci_abi_send_wqe* Begin(Qp* qp, uint32_t index, uint64_t wr_id, unsigned flags, int* error) {
  // Wherever windows are bound, lists are registered.
  roci_abi_send_wqe* entry = BeginEntry(qp->sq, index, IBV_WR_BIND_MW, wr_id, flags, error);
  if (entry != nullptr) entry->opcode = ROCI_ABI_WR_REG_LIST;
  return entry;
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
  if (error != 0) return error;
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
};
