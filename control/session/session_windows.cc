// Session commands for memory windows.
#include "control/session/memory_status.h"
#include "control/session/session.h"

namespace roci::control {

absl::Status Session::AllocMw(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& alloc = request.As<roci_abi_alloc_mw_request>();
  PdRecord* pd = FindPd(alloc.pd);
  if (pd == nullptr) return absl::NotFoundError("no such protection domain");
  MwRecord record;
  record.share = QuotaShare(quotas_->mws, 1);
  if (!record.share.ok()) return LimitReached("memory windows", "limits.max_mw");
  record.pd = alloc.pd;
  const auto type = static_cast<memory::WindowType>(alloc.type);
  const auto [status, key] = shard_->Do(dataplane::AllocateWindow{alloc.pd, type});
  if (status != memory::MemoryStatus::kOk) return StatusOfMemory(status);
  ++pd->ref_count;
  auto& response = reply.As<roci_abi_alloc_mw_response>();
  response.handle = memory::IndexOfKey(key);
  response.rkey = key;
  mws_.AddAs(response.handle, std::move(record));
  return absl::OkStatus();
}

absl::Status Session::DeallocMw(const Request& request, const FdsPointer&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const MwRecord* record = mws_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("no such memory window");
  const absl::Status status = StatusOfMemory(shard_->Do(dataplane::DeallocateWindow{handle}));
  if (!status.ok()) return status;
  --pds_.Find(record->pd)->ref_count;
  mws_.Remove(handle);
  return absl::OkStatus();
}

}  // namespace roci::control
