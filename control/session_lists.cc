// Session commands about list regions, which work requests register.
#include "control/memory_status.h"
#include "control/session.h"
#include "verbs_provider/abi/list_mr.h"

namespace roci::control {

absl::Status Session::AllocListMr(const Request& request, Fds&, Reply& reply) {
  const auto& alloc = request.As<roci_abi_alloc_list_mr_request>();
  PdRecord* pd = FindPd(alloc.pd);
  if (pd == nullptr) return absl::NotFoundError("protection domain");
  ListRecord record;
  record.share = QuotaShare(quotas_->mrs, 1);
  if (!record.share.ok()) return absl::ResourceExhaustedError("memory regions");
  const uint64_t bytes = uint64_t{alloc.max_runs} * sizeof(roci_abi_sge);
  // The daemon has a copy of its own.
  record.memory = QuotaShare(admission_.user->ring_memory, 2 * bytes);
  if (!record.memory.ok()) return absl::ResourceExhaustedError("ring memory");
  record.pd = alloc.pd;
  absl::StatusOr<dataplane::CreatedList> created = dataplane_->CreateList(alloc.pd, alloc.max_runs);
  if (!created.ok()) return created.status();
  ++pd->users;
  auto& response = reply.As<roci_abi_alloc_list_mr_response>();
  response.handle = created->key >> 8;
  response.key = created->key;
  response.memory_size = bytes;
  reply.Hand(UniqueFd(created->memory.Release()));
  lists_.AddAs(response.handle, std::move(record));
  return absl::OkStatus();
}

absl::Status Session::FreeListMr(const Request& request, Fds&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const ListRecord* record = lists_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("list region");
  dataplane_->DestroyList(handle);
  --pds_.Find(record->pd)->users;
  lists_.Remove(handle);
  return absl::OkStatus();
}

}  // namespace roci::control
