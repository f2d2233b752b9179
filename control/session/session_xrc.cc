// Session commands for XRC domains and the receiving queue pairs in them.
#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "control/loop/errno_status.h"
#include "control/session/session.h"
#include "dataplane/qp/queue_layouts.h"

namespace roci::control {

absl::Status Session::OpenXrcd(const Request& request, const FdsPointer& fds, Reply& reply) {
  const auto& open = request.As<roci_abi_open_xrcd_request>();
  XrcdRecord record;
  record.share = QuotaShare(quotas_->xrcds, 1);
  if (!record.share.ok()) return LimitReached("XRC domains");
  FdsPointer file = open.has_file != 0 ? fds : nullptr;
  absl::StatusOr<std::shared_ptr<XrcDomain>> domain = device_->xrc_domains().Open(
      device_->dataplane(), shard_->lcore_index(), std::move(file), open.flags);
  if (!domain.ok()) return domain.status();
  const absl::Status status = JoinLcore((*domain)->dataplane().lcore_index());
  if (!status.ok()) return status;
  record.domain = *std::move(domain);
  const absl::StatusOr<uint32_t> handle = xrcds_.Add(std::move(record));
  if (!handle.ok()) return handle.status();
  reply.As<roci_abi_handle_response>().handle = *handle;
  return absl::OkStatus();
}

// All sessions of an XRC domain must be on the same lcore.
absl::Status Session::JoinLcore(uint32_t lcore_index) {
  if (shard_->lcore_index() == lcore_index) return absl::OkStatus();
  if (xrcds_.size() != 0 || !shard_->MoveTo(lcore_index)) {
    return absl::FailedPreconditionError(
        "the XRC domain is on another lcore, to which this session can no longer move");
  }
  return absl::OkStatus();
}

absl::Status Session::CloseXrcd(const Request& request, const FdsPointer&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const XrcdRecord* xrcd = xrcds_.Find(handle);
  if (xrcd == nullptr) return absl::NotFoundError("no such XRC domain");
  if (xrcd->ref_count > 0) return absl::FailedPreconditionError("the XRC domain is in use");
  xrcds_.Remove(handle);
  return absl::OkStatus();
}

absl::Status Session::CreateTargetQp(const roci_abi_create_qp_request& create, Reply& reply) {
  XrcdRecord* xrcd = xrcds_.Find(create.pd);
  if (xrcd == nullptr) return absl::NotFoundError("no such XRC domain");
  dataplane::QueuePairConfig config;
  config.origin = Origin();
  config.type = roce::QpType::kXrcRecv;
  config.max_send_wr = 0;
  config.limits = TransportLimits();
  config.limits.max_path_mtu = roce::PathMtu::k4096;  // see ConfigOf
  XrcDomain::Target target;
  target.user = admission_.user;
  target.share = QuotaShare(quotas_->qps, 1);
  if (!target.share.ok()) return LimitReached("queue pairs", "limits.max_qp");
  const dataplane::QueueLayout layout = dataplane::LayOutQueues(config);
  target.memory = admission_.user->TakeRings(layout.memory_size);
  if (!target.memory.ok()) return RingShare::Refusal();
  dataplane::XrcClient& domain = xrcd->domain->dataplane();
  const absl::StatusOr<dataplane::CreatedTarget> created =
      domain.Do(dataplane::CreateTarget{config});
  if (!created.ok()) return created.status();
  absl::Cleanup destroy = [&] { domain.Do(dataplane::DestroyTarget{*created->qp}); };
  const uint32_t qpn = created->qpn.value();
  target.qp = created->qp;
  target.layout = layout;
  xrcd->domain->targets().emplace(qpn, std::move(target));
  absl::Cleanup erase = [&] { xrcd->domain->targets().erase(qpn); };
  const absl::StatusOr<uint32_t> handle = OpenTarget(create.pd, qpn, create.user_handle);
  if (!handle.ok()) return handle.status();
  std::move(erase).Cancel();
  std::move(destroy).Cancel();
  auto& response = reply.As<roci_abi_create_qp_response>();
  response.handle = *handle;
  response.qpn = qpn;
  return absl::OkStatus();
}

// Another handle for an existing queue pair.
absl::StatusOr<uint32_t> Session::OpenTarget(uint32_t xrcd_handle, uint32_t qpn,
                                             uint64_t user_handle) {
  XrcdRecord* xrcd = xrcds_.Find(xrcd_handle);
  const auto found = xrcd->domain->targets().find(qpn);
  if (found == xrcd->domain->targets().end())
    return absl::InvalidArgumentError("no such queue pair in the XRC domain");
  XrcDomain::Target& target = found->second;
  // A limit, since the lcore sends each event of the queue pair to all of them.
  constexpr uint32_t kMostOpenings = 256;
  if (target.openings >= kMostOpenings)
    return absl::ResourceExhaustedError(
        absl::StrCat("at most ", kMostOpenings, " handles per XRC queue pair"));
  // Bytes of an opening in the daemon's heap.
  constexpr uint64_t kOpeningBytes = sizeof(QpRecord) + sizeof(dataplane::TargetOpening);
  QpRecord record;
  record.memory = admission_.user->TakeRings(kOpeningBytes, 0);
  if (!record.memory.ok()) return RingShare::Refusal();
  const absl::StatusOr<uint32_t> handle = qps_.Next();
  if (!handle.ok()) return handle.status();
  record.qp = target.qp;
  record.qpn = roce::Qpn(qpn);
  record.type = roce::QpType::kXrcRecv;
  record.layout = target.layout;
  record.user_handle = user_handle;
  record.xrcd = xrcd_handle;
  record.domain = xrcd->domain;
  record.opening =
      xrcd->domain->dataplane().Do(dataplane::OpenTarget{*target.qp, *shard_, user_handle});
  ++target.openings;
  ++xrcd->ref_count;
  qps_.AddAs(*handle, std::move(record));
  return *handle;
}

absl::Status Session::OpenQp(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& open = request.As<roci_abi_open_qp_request>();
  if (xrcds_.Find(open.xrcd) == nullptr) return absl::NotFoundError("no such XRC domain");
  const absl::StatusOr<uint32_t> handle = OpenTarget(open.xrcd, open.qpn, open.user_handle);
  if (!handle.ok()) return handle.status();
  const roce::QpAttributes attributes =
      shard_->Do(dataplane::QueryQueuePair{*qps_.Find(*handle)->qp});
  auto& response = reply.As<roci_abi_open_qp_response>();
  response.handle = *handle;
  response.state = static_cast<uint32_t>(attributes.state);
  return absl::OkStatus();
}

// Destroys the queue pair with its last handle. Returns the number of events sent for this handle.
uint32_t Session::CloseTarget(QpRecord& record) {
  dataplane::XrcClient& domain = record.domain->dataplane();
  const uint32_t events = domain.Do(dataplane::CloseTarget{*record.qp, *record.opening});
  const auto target = record.domain->targets().find(record.qpn.value());
  if (--target->second.openings == 0) {
    domain.Do(dataplane::DestroyTarget{*record.qp});
    record.domain->targets().erase(target);
  }
  return events;
}

}  // namespace roci::control
