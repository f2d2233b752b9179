// Session commands for list regions and signature regions, which work requests register.
#include "control/session/memory_status.h"
#include "control/session/session.h"
#include "memory/t10_dif.h"
#include "verbs_provider/abi/list_mr.h"

namespace roci::control {

absl::Status Session::AllocListMr(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& alloc = request.As<roci_abi_alloc_list_mr_request>();
  return MakeList(alloc.pd, {.max_runs = alloc.max_runs}, reply);
}

absl::Status Session::AllocSignatureMr(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& alloc = request.As<roci_abi_alloc_signature_mr_request>();
  return MakeList(alloc.pd,
                  {.max_runs = alloc.max_runs,
                   .max_protection_runs = alloc.max_protection_runs,
                   .has_signature = true},
                  reply);
}

absl::Status Session::MakeList(uint32_t pd_handle, const dataplane::ListRoom& room, Reply& reply) {
  PdRecord* pd = FindPd(pd_handle);
  if (pd == nullptr) return absl::NotFoundError("no such protection domain");
  ListRecord record;
  record.share = QuotaShare(quotas_->mrs, 1);
  if (!record.share.ok()) return LimitReached("memory regions", "limits.max_mr");
  const uint64_t bytes = room.Bytes();
  // The daemon keeps a private copy.
  record.memory = admission_.user->TakeRings(2 * bytes);
  if (!record.memory.ok()) return RingShare::Refusal();
  record.pd = pd_handle;
  absl::StatusOr<dataplane::CreatedList> created =
      shard_->Do(dataplane::CreateList{pd_handle, room});
  if (!created.ok()) return created.status();
  ++pd->ref_count;
  auto& response = reply.As<roci_abi_alloc_list_mr_response>();
  response.handle = memory::IndexOfKey(created->key);
  response.key = created->key;
  response.memory_size = bytes;
  reply.Hand(UniqueFd(created->memory.Release()));
  lists_.AddAs(response.handle, std::move(record));
  return absl::OkStatus();
}

absl::Status Session::CheckSignatureMr(const Request& request, const FdsPointer&, Reply& reply) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  if (lists_.Find(handle) == nullptr) return absl::NotFoundError("no such signature region");
  const auto [status, error] = shard_->Do(dataplane::TakeIntegrityError{handle});
  if (status != memory::MemoryStatus::kOk)
    return absl::InvalidArgumentError("not a signature region");
  static_assert(static_cast<uint32_t>(memory::DifFault::kGuard) == ROCI_ABI_SIGNATURE_BAD_GUARD);
  static_assert(static_cast<uint32_t>(memory::DifFault::kReferenceTag) ==
                ROCI_ABI_SIGNATURE_BAD_REF_TAG);
  static_assert(static_cast<uint32_t>(memory::DifFault::kApplicationTag) ==
                ROCI_ABI_SIGNATURE_BAD_APP_TAG);
  auto& response = reply.As<roci_abi_check_signature_mr_response>();
  response.fault = static_cast<uint32_t>(error.what.fault);
  response.key = error.key;
  response.expected = error.what.expected;
  response.actual = error.what.actual;
  response.offset = error.offset;
  return absl::OkStatus();
}

absl::Status Session::FreeListMr(const Request& request, const FdsPointer&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const ListRecord* record = lists_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("no such list region");
  shard_->Do(dataplane::DestroyList{handle});
  --pds_.Find(record->pd)->ref_count;
  lists_.Remove(handle);
  return absl::OkStatus();
}

}  // namespace roci::control
