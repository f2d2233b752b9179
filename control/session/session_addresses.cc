// Session commands for address handles; waits for path resolution of address vectors.
#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "control/loop/errno_status.h"
#include "control/loop/no_memory.h"
#include "control/session/session.h"

namespace roci::control {

absl::Status Session::WithPath(const roci_abi_ah_attr& attr, roce::Qpn local, roce::Qpn remote,
                               const UsePath& then, Reply& reply) {
  if ((app_features_ & ROCI_ABI_FEATURE_PATH_WAITS) != 0) {
    return WithPathOrWait(attr, local, remote, then, reply);
  }
  const absl::StatusOr<std::optional<roce::Path>> path = device_->FindPath(
      attr, local, remote, admission_.user,
      [this, then](const absl::StatusOr<roce::Path>& found) {
        AnswerOrEnd([&] {
          Reply answer;
          const absl::Status status =
              found.ok() ? OrRefuse([&] { return then(*found, answer); }) : found.status();
          FinishDeferred(status, answer);
        });
      },
      waiting_path_);
  if (!path.ok()) return path.status();
  if (path->has_value()) return then(**path, reply);
  reply.deferred = true;
  return absl::OkStatus();
}

absl::Status Session::WithPathOrWait(const roci_abi_ah_attr& attr, roce::Qpn local,
                                     roce::Qpn remote, const UsePath& then, Reply& reply) {
  const uint32_t asked = request_.head.wait;
  if (path_waits_.IsUnderWay(asked)) return MustAskAgain(asked, reply);
  if (const std::optional<PathWaits::Result> result = path_waits_.Take(asked)) {
    request_began_ = result->called;
    if (!result->status.ok()) return result->status;
  }
  uint64_t* waiting_path;
  const uint32_t wait = path_waits_.Begin(request_began_, &waiting_path);
  absl::Cleanup drop_unless_begun = [&] {
    if (*waiting_path == 0) path_waits_.Drop(wait);
  };
  const absl::StatusOr<std::optional<roce::Path>> path = device_->FindPath(
      attr, local, remote, admission_.user,
      [this, wait](const absl::StatusOr<roce::Path>& found) {
        AnswerOrEnd([&] { path_waits_.End(wait, found.status()); });
      },
      *waiting_path);
  if (!path.ok()) return path.status();
  if (path->has_value()) return then(**path, reply);
  return MustAskAgain(wait, reply);
}

absl::Status Session::MustAskAgain(uint32_t wait, Reply& reply) {
  reply.wait = wait;
  return StatusFromErrno(EINPROGRESS, "path resolution");
}

absl::Status Session::CreateAh(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& create = request.As<roci_abi_create_ah_request>();
  if (FindPd(create.pd) == nullptr) return absl::NotFoundError("no such protection domain");
  const uint32_t pd = create.pd;
  return WithPath(
      create.attr, roce::Qpn(), roce::Qpn(),
      [this, pd](const roce::Path& path, Reply& answer) -> absl::Status {
        AhRecord record;
        record.pd = pd;
        record.share = QuotaShare(quotas_->ahs, 1);
        if (!record.share.ok()) return LimitReached("address handles", "limits.max_ah");
        const absl::StatusOr<uint32_t> handle =
            shard_->Do(dataplane::CreateAddressHandle{pd, path});
        if (!handle.ok()) return handle.status();
        ++pds_.Find(pd)->ref_count;
        ahs_.AddAs(*handle, std::move(record));
        answer.As<roci_abi_handle_response>().handle = *handle;
        return absl::OkStatus();
      },
      reply);
}

absl::Status Session::DestroyAh(const Request& request, const FdsPointer&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const AhRecord* record = ahs_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("no such address handle");
  const absl::Status status = shard_->Do(dataplane::DestroyAddressHandle{handle});
  if (!status.ok()) return status;
  --pds_.Find(record->pd)->ref_count;
  ahs_.Remove(handle);
  return absl::OkStatus();
}

}  // namespace roci::control
