// Session commands for queue pairs.
#include <algorithm>
#include <cerrno>

#include "control/loop/errno_status.h"
#include "control/loop/privilege.h"
#include "control/session/qp_attributes.h"
#include "control/session/session.h"
#include "dataplane/qp/queue_layouts.h"

namespace roci::control {
namespace {

void DescribeLayout(const dataplane::QueueLayout& layout, roci_abi_create_qp_response& out) {
  out.max_send_wr = layout.max_send_wr;
  out.max_recv_wr = layout.max_recv_wr;
  out.max_send_sge = layout.max_send_sge;
  out.max_recv_sge = layout.max_recv_sge;
  out.max_inline = layout.max_inline;
  out.send_capacity = layout.send_capacity;
  out.recv_capacity = layout.recv_capacity;
  out.send_stride = layout.send_stride;
  out.recv_stride = layout.recv_stride;
  out.send_queue_offset = layout.send_queue_offset;
  out.recv_queue_offset = layout.recv_queue_offset;
  out.send_slots_offset = layout.send_slots_offset;
  out.recv_slots_offset = layout.recv_slots_offset;
  out.memory_size = layout.memory_size;
}

std::optional<roci_abi_ah_attr>& AddressOf(QpRecord& record) {
  if (record.domain == nullptr) return record.address;
  return record.domain->targets().at(record.qpn.value()).address;
}

}  // namespace

roce::QpLimits Session::TransportLimits() const {
  roce::QpLimits limits;
  limits.max_rd_atomic = static_cast<uint8_t>(device_->limits().max_rd_atomic);
  limits.max_dest_rd_atomic = limits.max_rd_atomic;
  limits.max_path_mtu = device_->max_path_mtu();
  const DeviceConfig& config = device_->config();
  if (config.reorder != ReorderUse::kGoBackN) {
    limits.reorder_wait_ns = config.reorder_wait_us * static_cast<uint32_t>(roce::kNsPerUs);
    limits.selective_repeat = config.reorder == ReorderUse::kSelective;
  }
  return limits;
}

// Work queues receive no frames without an RSS queue pair, so they need no privilege.
bool Session::NeedsPrivilege(const roci_abi_create_qp_request& create) {
  return create.qp_type == static_cast<uint32_t>(roce::QpType::kRawPacket) &&
         (create.flags & ROCI_ABI_QP_WORK_QUEUE) == 0;
}

bool Session::MayUseRawPackets() const {
  return KnownRawPackets(peer_, app_.get()).value_or(findings_.may_use_raw_packets);
}

absl::Status Session::CreateQp(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& create = request.As<roci_abi_create_qp_request>();
  const auto type = static_cast<roce::QpType>(create.qp_type);
  if (type == roce::QpType::kXrcRecv) return CreateTargetQp(create, reply);
  if (NeedsPrivilege(create) && !MayUseRawPackets()) {
    return absl::PermissionDeniedError("raw packet queue pairs need a privilege");
  }
  dataplane::QueuePairConfig config = ConfigOf(create);
  if (const absl::Status status = UseQueues(create, config); !status.ok()) return status;
  const bool receives = type != roce::QpType::kXrcSend;
  QpRecord record;
  record.pd = create.pd;
  record.send_cq = create.send_cq;
  if (receives) record.recv_cq = create.recv_cq;
  if (config.srq != nullptr) record.srq = create.srq;
  record.is_work_queue = config.is_work_queue;
  return AddQueuePair(config, std::move(record), reply);
}

// For faults of a program's queue pairs.
dataplane::QueuePairOrigin Session::Origin() const {
  dataplane::QueuePairOrigin origin;
  origin.SetProgram(program_, static_cast<uint32_t>(peer_.pid));
  return origin;
}

// All that does not depend on other objects of the program. The path MTU of the port now counts for
// UD only: ModifyQp checks that of other types, which come when the port may carry more.
dataplane::QueuePairConfig Session::ConfigOf(const roci_abi_create_qp_request& create) const {
  dataplane::QueuePairConfig config;
  config.origin = Origin();
  config.type = static_cast<roce::QpType>(create.qp_type);
  config.pd = create.pd;
  config.lacking_opcodes = device_->limits().LackingOpcodes();
  config.sq_sig_all = create.sq_sig_all != 0;
  config.blocks_own_multicast = (create.flags & ROCI_ABI_QP_BLOCK_SELF_MULTICAST) != 0;
  config.user_handle = create.user_handle;
  config.max_send_wr = create.max_send_wr;
  config.max_send_sge = create.max_send_sge;
  config.max_recv_sge = create.max_recv_sge;
  // Room for payloads that the provider copies into the ring without being asked.
  config.max_inline = std::max(create.max_inline, services_.config.memory.auto_inline);
  config.limits = TransportLimits();
  if (config.type != roce::QpType::kUd) config.limits.max_path_mtu = roce::PathMtu::k4096;
  if (config.type == roce::QpType::kRawPacket) {
    config.limits.max_message_bytes = device_->max_raw_frame();
    config.is_work_queue = (create.flags & ROCI_ABI_QP_WORK_QUEUE) != 0;
  }
  return config;
}

// Looks up the objects that the queue pair uses.
absl::Status Session::UseQueues(const roci_abi_create_qp_request& create,
                                dataplane::QueuePairConfig& config) {
  const bool receives = config.type != roce::QpType::kXrcSend;
  const bool has_srq = receives && create.srq != ROCI_ABI_NO_HANDLE;
  const CqRecord* send_cq = cqs_.Find(create.send_cq);
  const CqRecord* recv_cq = receives ? cqs_.Find(create.recv_cq) : nullptr;
  const SrqRecord* srq = has_srq ? srqs_.Find(create.srq) : nullptr;
  if (FindPd(create.pd) == nullptr || send_cq == nullptr || (receives && recv_cq == nullptr) ||
      (has_srq && srq == nullptr)) {
    return absl::NotFoundError(
        "no such protection domain, completion queue or shared receive queue");
  }
  config.send_cq = send_cq->cq;
  if (recv_cq != nullptr) config.recv_cq = recv_cq->cq;
  if (srq == nullptr) {
    config.max_recv_wr = receives ? create.max_recv_wr : 0;
    return absl::OkStatus();
  }
  config.max_recv_wr = 0;
  config.srq = srq->srq;
  if (srq->xrcd != 0) {
    return absl::InvalidArgumentError("the shared receive queue belongs to an XRC domain");
  }
  if (!srq->has_tags) return absl::OkStatus();
  // The device uses the send queue for rendezvous, and the queue pair's keys for READs into tagged
  // buffers.
  config.recv_cq = cqs_.Find(srq->cq)->cq;
  if (config.type != roce::QpType::kRc || create.max_send_wr != 0 || srq->pd != create.pd) {
    return absl::InvalidArgumentError("a queue pair with tag matching must be RC and cannot send");
  }
  return absl::OkStatus();
}

absl::Status Session::AddQueuePair(const dataplane::QueuePairConfig& config, QpRecord record,
                                   Reply& reply) {
  const dataplane::QueueLayout layout = dataplane::LayOutQueues(config);
  DeviceQuotas& quotas = *quotas_;
  record.share = QuotaShare(record.is_work_queue ? quotas.work_queues : quotas.qps, 1);
  if (!record.share.ok()) return LimitReached("queue pairs", "limits.max_qp");
  const bool has_tags = record.srq != 0 && srqs_.Find(record.srq)->has_tags;
  record.memory = admission_.user->TakeRings(layout.memory_size +
                                             (has_tags ? dataplane::TagReceiverBytes() : 0));
  if (!record.memory.ok()) return RingShare::Refusal();
  const absl::StatusOr<uint32_t> handle = qps_.Next();
  if (!handle.ok()) return handle.status();
  absl::StatusOr<dataplane::CreatedQueuePair> created =
      shard_->Do(dataplane::CreateQueuePair{config, *handle});
  if (!created.ok()) return created.status();
  record.qp = created->queue_pair;
  record.qpn = created->qpn;
  record.type = config.type;
  record.layout = layout;
  record.user_handle = config.user_handle;
  record.sq_sig_all = config.sq_sig_all;
  ++pds_.Find(record.pd)->ref_count;
  qps_.AddAs(*handle, std::move(record));

  auto& response = reply.As<roci_abi_create_qp_response>();
  response.handle = *handle;
  response.qpn = created->qpn.value();
  response.lacking_opcodes = config.lacking_opcodes;
  DescribeLayout(layout, response);
  reply.Hand(UniqueFd(created->memory.Release()));
  return absl::OkStatus();
}

absl::Status Session::ModifyQp(const Request& request, const FdsPointer&, Reply& reply) {
  roci_abi_modify_qp_request modify = request.As<roci_abi_modify_qp_request>();
  const QpRecord* record = qps_.Find(modify.handle);
  if (record == nullptr) return absl::NotFoundError("no such queue pair");
  modify.mask = KnownAttributesOf(record->type, modify.mask);
  roce::QpAttributes wanted;
  absl::Status status = AttributesFromAbi(modify.attr, modify.mask, wanted);
  if (!status.ok()) return status;
  wanted.access_flags &= ~device_->limits().LackingRights();
  // Linux requires CAP_NET_RAW.
  if ((modify.mask & roce::kAttrQkey) && roce::IsControlledQkey(wanted.qkey) &&
      !MayUseRawPackets()) {
    return StatusFromErrno(EPERM, "controlled Q_Key");
  }
  status = StatusOfModify(
      roce::CheckAttributeValues(wanted, modify.mask, TransportLimits().ForAttributes()));
  if (status.ok()) status = CheckEce(modify, record->type);
  if (!status.ok()) return status;
  if (!(modify.mask & roce::kAttrAddressVector)) {
    return ApplyModify(modify, wanted, nullptr, reply);
  }
  // A transition that is impossible now is refused before the path is resolved, which takes time.
  const roce::QpAttributes current = shard_->Do(dataplane::QueryQueuePair{*record->qp});
  const roce::QpState to = modify.mask & roce::kAttrState ? wanted.state : current.state;
  status = StatusOfModify(roce::CheckModify(record->type, current.state, to, modify.mask));
  if (!status.ok()) return status;
  const roce::Qpn remote = modify.mask & roce::kAttrDestQpn ? wanted.dest_qpn : current.dest_qpn;

  return WithPath(
      modify.attr.ah, record->qpn, remote,
      [this, modify, wanted](const roce::Path& path, Reply& answer) {
        return ApplyModify(modify, wanted, &path, answer);
      },
      reply);
}

// Options that the peer has agreed to count from RTR on.
absl::Status Session::CheckEce(const roci_abi_modify_qp_request& modify, roce::QpType type) const {
  if (modify.attr.ece_options == 0) return absl::OkStatus();
  const bool starts = (modify.mask & roce::kAttrState) != 0 &&
                      modify.attr.state == static_cast<uint32_t>(roce::QpState::kRtr);
  const bool is_possible =
      type == roce::QpType::kRc && device_->config().reorder != ReorderUse::kGoBackN;
  if (!starts || !is_possible || modify.attr.ece_options != ROCI_ABI_ECE_SELECTIVE_REPEAT) {
    return absl::InvalidArgumentError("options that the device did not offer (ECE)");
  }
  return absl::OkStatus();
}

absl::Status Session::ApplyModify(const roci_abi_modify_qp_request& modify,
                                  const roce::QpAttributes& values, const roce::Path* path,
                                  Reply& reply) {
  QpRecord* record = qps_.Find(modify.handle);
  if (record == nullptr) return absl::NotFoundError("no such queue pair");
  const dataplane::ModifiedQueuePair modified = shard_->Do(dataplane::ModifyQueuePair{
      *record->qp, values, modify.mask, path, modify.attr.ece_options != 0});
  const absl::Status status = StatusOfModify(modified.result);
  if (!status.ok()) return status;
  std::optional<roci_abi_ah_attr>& address = AddressOf(*record);
  if (path != nullptr) address = modify.attr.ah;
  if (modified.state == roce::QpState::kReset) address.reset();
  reply.As<roci_abi_modify_qp_response>().state = static_cast<uint32_t>(modified.state);
  return absl::OkStatus();
}

absl::Status Session::QueryQp(const Request& request, const FdsPointer&, Reply& reply) {
  QpRecord* record = qps_.Find(request.As<roci_abi_query_qp_request>().handle);
  if (record == nullptr) return absl::NotFoundError("no such queue pair");
  const roce::QpAttributes attributes = shard_->Do(dataplane::QueryQueuePair{*record->qp});
  auto& response = reply.As<roci_abi_query_qp_response>();
  AttributesToAbi(attributes, response.attr);
  const dataplane::QueueLayout& layout = record->layout;
  response.attr.max_send_wr = layout.max_send_wr;
  response.attr.max_recv_wr = layout.max_recv_wr;
  response.attr.max_send_sge = layout.max_send_sge;
  response.attr.max_recv_sge = layout.max_recv_sge;
  response.attr.max_inline = layout.max_inline;
  if (const auto& address = AddressOf(*record)) response.attr.ah = *address;
  response.sq_sig_all = record->sq_sig_all;
  return absl::OkStatus();
}

absl::Status Session::DestroyQp(const Request& request, const FdsPointer&, Reply& reply) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  QpRecord* record = qps_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("no such queue pair");
  if (!record->groups.empty()) {
    return absl::FailedPreconditionError("the queue pair is in a multicast group");
  }
  if (record->ref_count > 0) return absl::FailedPreconditionError("the queue pair has flow rules");
  const uint32_t table = record->queue_table;
  auto& response = reply.As<roci_abi_destroy_response>();
  if (record->domain != nullptr) {
    response.async_events = CloseTarget(*record);
    shard_->AwaitCopies({});
    --xrcds_.Find(record->xrcd)->ref_count;
  } else {
    response.async_events = shard_->Do(dataplane::DestroyQueuePair{*record->qp}).async_events;
    --pds_.Find(record->pd)->ref_count;
  }
  response.async_events = KeptAsyncEvents(record->user_handle, response.async_events);
  qps_.Remove(handle);
  if (table != 0) --queue_tables_.Find(table)->ref_count;
  return absl::OkStatus();
}

}  // namespace roci::control
