// Session commands about queue pairs.
#include <algorithm>

#include "control/qp_attributes.h"
#include "control/session.h"

namespace roci::control {
namespace {

constexpr uint32_t kNoSrq = ~0u;

absl::Status CheckCapabilities(const roci_abi_create_qp_request& create,
                               const DeviceLimits& limits) {
  if (create.max_send_wr > limits.max_qp_wr || create.max_recv_wr > limits.max_qp_wr ||
      create.max_send_sge > kMaxSge || create.max_recv_sge > kMaxSge ||
      create.max_inline > kMaxInline) {
    return absl::InvalidArgumentError("more than the device has");
  }
  return absl::OkStatus();
}

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

roce::QpAttributeLimits AttributeLimits(const Device& device) {
  roce::QpAttributeLimits limits;
  limits.max_rd_atomic = static_cast<uint8_t>(device.limits().max_rd_atomic);
  limits.max_dest_rd_atomic = limits.max_rd_atomic;
  limits.max_path_mtu = device.max_path_mtu();
  return limits;
}

}  // namespace

absl::Status Session::CreateQp(const Request& request, Fds&, Reply& reply) {
  const auto& create = request.As<roci_abi_create_qp_request>();
  if (!IsOfferedQpType(create.qp_type)) return absl::UnimplementedError("type of queue pair");
  if (create.srq != kNoSrq) return absl::UnimplementedError("shared receive queue");
  if (create.flags != 0) return absl::UnimplementedError("creation flags");
  absl::Status status = CheckCapabilities(create, device_->limits());
  if (!status.ok()) return status;
  PdRecord* pd = pds_.Find(create.pd);
  const CqRecord* send_cq = cqs_.Find(create.send_cq);
  const CqRecord* recv_cq = cqs_.Find(create.recv_cq);
  if (pd == nullptr || send_cq == nullptr || recv_cq == nullptr) {
    return absl::NotFoundError("protection domain or completion queue");
  }
  dataplane::QueuePairConfig config;
  config.type = static_cast<roce::QpType>(create.qp_type);
  config.pd = create.pd;
  config.send_cq = send_cq->cq;
  config.recv_cq = recv_cq->cq;
  config.sq_sig_all = create.sq_sig_all != 0;
  config.user_handle = create.user_handle;
  config.max_send_wr = create.max_send_wr;
  config.max_recv_wr = create.max_recv_wr;
  config.max_send_sge = create.max_send_sge;
  config.max_recv_sge = create.max_recv_sge;
  // Room for what the provider copies into the ring by itself.
  config.max_inline = std::max(create.max_inline, services_.config.memory.auto_inline);
  config.limits.max_rd_atomic = static_cast<uint8_t>(device_->limits().max_rd_atomic);
  config.limits.max_dest_rd_atomic = config.limits.max_rd_atomic;
  config.limits.max_path_mtu = device_->max_path_mtu();
  const absl::StatusOr<dataplane::QueueLayout> layout = dataplane::LayOutQueues(config);
  if (!layout.ok()) return layout.status();

  QpRecord record;
  record.share = QuotaShare(device_->quotas().qps, 1);
  if (!record.share.ok()) return absl::ResourceExhaustedError("queue pairs");
  record.memory = QuotaShare(services_.ring_memory, layout->memory_size);
  if (!record.memory.ok()) return absl::ResourceExhaustedError("ring memory");
  absl::StatusOr<dataplane::CreatedQueuePair> created = dataplane_->CreateQueuePair(config);
  if (!created.ok()) return created.status();
  dataplane::QueuePair* qp = created->queue_pair;
  record.qp = qp;
  record.user_handle = create.user_handle;
  record.pd = create.pd;
  record.send_cq = create.send_cq;
  record.recv_cq = create.recv_cq;
  record.sq_sig_all = config.sq_sig_all;
  ++pd->users;
  qps_.AddAs(qp->handle(), std::move(record));

  auto& response = reply.As<roci_abi_create_qp_response>();
  response.handle = qp->handle();
  response.qpn = qp->qpn().value();
  DescribeLayout(qp->layout(), response);
  reply.Hand(UniqueFd(created->memory.Release()));
  return absl::OkStatus();
}

absl::Status Session::ModifyQp(const Request& request, Fds&, Reply& reply) {
  const auto& modify = request.As<roci_abi_modify_qp_request>();
  const QpRecord* record = qps_.Find(modify.handle);
  if (record == nullptr) return absl::NotFoundError("queue pair");
  roce::QpAttributes wanted;
  absl::Status status = AttributesFromAbi(modify.attr, modify.mask, wanted);
  if (!status.ok()) return status;
  if (!(modify.mask & roce::kAttrAddressVector)) {
    return ApplyModify(modify, nullptr, reply);
  }
  // Everything else is checked before a peer is looked for.
  roce::QpAttributes current;
  dataplane_->QueryQueuePair(*record->qp, current);
  const roce::QpState to = modify.mask & roce::kAttrState ? wanted.state : current.state;
  status = StatusOfModify(roce::CheckModify(record->qp->type(), current.state, to, modify.mask));
  if (!status.ok()) return status;
  status =
      StatusOfModify(roce::CheckAttributeValues(wanted, modify.mask, AttributeLimits(*device_)));
  if (!status.ok()) return status;
  const roce::Qpn remote = modify.mask & roce::kAttrDestQpn ? wanted.dest_qpn : current.dest_qpn;

  return WithPath(
      modify.attr.ah, record->qp->qpn(), remote,
      [this, modify](const roce::Path& path, Reply& answer) {
        return ApplyModify(modify, &path, answer);
      },
      reply);
}

absl::Status Session::ApplyModify(const roci_abi_modify_qp_request& modify, const roce::Path* path,
                                  Reply& reply) {
  QpRecord* record = qps_.Find(modify.handle);
  if (record == nullptr) return absl::NotFoundError("queue pair");
  roce::QpAttributes wanted;
  absl::Status status = AttributesFromAbi(modify.attr, modify.mask, wanted);
  if (!status.ok()) return status;
  status = StatusOfModify(dataplane_->ModifyQueuePair(*record->qp, wanted, modify.mask, path,
                                                      AttributeLimits(*device_)));
  if (!status.ok()) return status;
  if (path != nullptr) record->address = modify.attr.ah;
  roce::QpAttributes now;
  dataplane_->QueryQueuePair(*record->qp, now);
  if (now.state == roce::QpState::kReset) record->address.reset();
  reply.As<roci_abi_modify_qp_response>().state = static_cast<uint32_t>(now.state);
  return absl::OkStatus();
}

absl::Status Session::QueryQp(const Request& request, Fds&, Reply& reply) {
  const QpRecord* record = qps_.Find(request.As<roci_abi_query_qp_request>().handle);
  if (record == nullptr) return absl::NotFoundError("queue pair");
  roce::QpAttributes attributes;
  dataplane_->QueryQueuePair(*record->qp, attributes);
  auto& response = reply.As<roci_abi_query_qp_response>();
  AttributesToAbi(attributes, response.attr);
  const dataplane::QueueLayout& layout = record->qp->layout();
  response.attr.max_send_wr = layout.max_send_wr;
  response.attr.max_recv_wr = layout.max_recv_wr;
  response.attr.max_send_sge = layout.max_send_sge;
  response.attr.max_recv_sge = layout.max_recv_sge;
  response.attr.max_inline = layout.max_inline;
  if (record->address) response.attr.ah = *record->address;
  response.sq_sig_all = record->sq_sig_all;
  return absl::OkStatus();
}

absl::Status Session::DestroyQp(const Request& request, Fds&, Reply& reply) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const QpRecord* record = qps_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("queue pair");
  const dataplane::EventCounts events = dataplane_->DestroyQueuePair(*record->qp);
  auto& response = reply.As<roci_abi_destroy_response>();
  response.comp_events = events.comp_events;
  response.async_events = events.async_events - TakeBackEvents(async_events_, record->user_handle,
                                                               sizeof(roci_abi_async_event));
  --pds_.Find(record->pd)->users;
  qps_.Remove(handle);
  return absl::OkStatus();
}

}  // namespace roci::control
