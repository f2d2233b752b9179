// Session commands for shared receive queues.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "control/session/session.h"
#include "dataplane/qp/queue_layouts.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::control {

absl::Status Session::CreateSrq(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& create = request.As<roci_abi_create_srq_request>();
  if (FindPd(create.pd) == nullptr) return absl::NotFoundError("no such protection domain");
  SrqRecord record;
  dataplane::SharedReceiveQueueConfig config;
  if (create.type == ROCI_ABI_SRQ_XRC) {
    const XrcdRecord* xrcd = xrcds_.Find(create.xrcd);
    const CqRecord* cq = cqs_.Find(create.cq);
    if (xrcd == nullptr || cq == nullptr) {
      return absl::NotFoundError("no such XRC domain or completion queue");
    }
    config.domain = xrcd->domain->dataplane().domain();
    config.cq = cq->cq;
    record.xrcd = create.xrcd;
    record.cq = create.cq;
  }
  config.pd = create.pd;
  config.max_wr = create.max_wr;
  config.max_sge = create.max_sge;
  config.user_handle = create.user_handle;
  const absl::StatusOr<AddedSrq> added = AddSrq(config, std::move(record), reply);
  if (!added.ok()) return added.status();
  auto& response = reply.As<roci_abi_create_srq_response>();
  response.handle = added->handle;
  response.srqn = added->created.number;
  response.layout = added->created.layout;
  return absl::OkStatus();
}

absl::Status Session::CreateTagSrq(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& create = request.As<roci_abi_create_tag_srq_request>();
  const CqRecord* cq = cqs_.Find(create.cq);
  if (FindPd(create.pd) == nullptr || cq == nullptr) {
    return absl::NotFoundError("no such protection domain or completion queue");
  }
  dataplane::SharedReceiveQueueConfig config;
  config.cq = cq->cq;
  config.pd = create.pd;
  config.max_wr = create.max_wr;
  config.max_sge = create.max_sge;
  config.user_handle = create.user_handle;
  config.tags = {create.max_tags, create.max_ops};
  SrqRecord record;
  record.cq = create.cq;
  absl::StatusOr<AddedSrq> added = AddSrq(config, std::move(record), reply);
  if (!added.ok()) return added.status();
  auto& response = reply.As<roci_abi_create_tag_srq_response>();
  const dataplane::TagQueueLayout& tags = added->created.tag_layout;
  response.handle = added->handle;
  response.doorbell = dataplane::ShardClient::TagDoorbell(response.handle);
  response.layout = added->created.layout;
  response.ops_capacity = tags.ops_capacity;
  response.ops_offset = tags.ops_offset;
  response.freed_capacity = tags.freed_capacity;
  response.freed_offset = tags.freed_offset;
  response.ops_memory_size = tags.memory_size;
  reply.Hand(UniqueFd(added->created.tag_memory.Release()));
  return absl::OkStatus();
}

absl::StatusOr<Session::AddedSrq> Session::AddSrq(const dataplane::SharedReceiveQueueConfig& config,
                                                  SrqRecord record, Reply& reply) {
  uint64_t bytes = dataplane::LayOutSharedReceiveQueue(config.max_wr, config.max_sge).memory_size;
  const bool has_tags = config.tags.max_tags != 0;
  if (has_tags) {
    bytes +=
        dataplane::LayOutTagQueue(config.tags).memory_size + dataplane::TagListBytes(config.tags);
  }
  record.share = QuotaShare(quotas_->srqs, 1);
  if (!record.share.ok()) return LimitReached("shared receive queues", "limits.max_srq");
  record.memory = admission_.user->TakeRings(bytes, has_tags ? 2 : 1);
  if (!record.memory.ok()) return RingShare::Refusal();
  record.max_wr = config.max_wr;
  record.pd = config.pd;
  record.has_tags = has_tags;
  record.user_handle = config.user_handle;
  const absl::StatusOr<uint32_t> handle = srqs_.Add(std::move(record));
  if (!handle.ok()) return handle.status();
  absl::Cleanup remove_record = [&] { srqs_.Remove(*handle); };
  absl::StatusOr<dataplane::CreatedSharedReceiveQueue> created =
      shard_->Do(dataplane::CreateSharedReceiveQueue{config, *handle});
  if (!created.ok()) return created.status();
  std::move(remove_record).Cancel();
  SrqRecord* added = srqs_.Find(*handle);
  added->srq = created->queue;
  added->number = created->number;
  added->layout = created->layout;
  ++pds_.Find(added->pd)->ref_count;
  if (added->xrcd != 0) ++xrcds_.Find(added->xrcd)->ref_count;
  reply.Hand(UniqueFd(created->memory.Release()));
  return AddedSrq{*handle, *std::move(created)};
}

absl::Status Session::ModifySrq(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& modify = request.As<roci_abi_modify_srq_request>();
  SrqRecord* record = srqs_.Find(modify.handle);
  if (record == nullptr) return absl::NotFoundError("no such shared receive queue");
  const bool resizes = (modify.mask & ROCI_ABI_SRQ_MAX_WR) != 0;
  const bool arms = (modify.mask & ROCI_ABI_SRQ_LIMIT) != 0;
  const uint32_t max_wr = resizes ? modify.max_wr : record->max_wr;
  if (arms && modify.limit > max_wr)
    return absl::InvalidArgumentError("the limit exceeds the size");
  const std::optional<uint32_t> limit = arms ? std::optional(modify.limit) : std::nullopt;
  if (resizes) return ResizeSrq(*record, max_wr, limit, reply);
  if (arms) shard_->Do(dataplane::SetReceiveLimit{*record->srq, *limit});
  return absl::OkStatus();
}

// A queue that shrinks keeps its memory, for later growth.
absl::Status Session::ResizeSrq(SrqRecord& record, uint32_t max_wr, std::optional<uint32_t> limit,
                                Reply& reply) {
  const dataplane::ReceiveQueueState state =
      shard_->Do(dataplane::InspectReceiveQueue{*record.srq});
  if (state.posted > max_wr) return absl::InvalidArgumentError("more receives are posted than fit");
  if (!limit.has_value() && state.limit > max_wr)
    return absl::InvalidArgumentError("the size is below the limit");
  if (max_wr > record.layout.max_wr) return GrowSrq(record, max_wr, limit, reply);
  record.max_wr = max_wr;
  if (limit.has_value()) shard_->Do(dataplane::SetReceiveLimit{*record.srq, *limit});
  return absl::OkStatus();
}

absl::Status Session::GrowSrq(SrqRecord& record, uint32_t max_wr, std::optional<uint32_t> limit,
                              Reply& reply) {
  const roci_abi_srq_layout layout =
      dataplane::LayOutSharedReceiveQueue(max_wr, record.layout.max_sge);
  RingShare memory = admission_.user->TakeRings(layout.memory_size);
  if (!memory.ok()) return RingShare::Refusal();
  absl::StatusOr<dataplane::SharedReceiveQueueGrowth> growth =
      shard_->Do(dataplane::GrowSharedReceiveQueue{*record.srq, layout});
  if (!growth.ok()) return growth.status();
  struct Growth {
    RingShare memory;
    dataplane::SharedReceiveQueueGrowth growth;
  };
  auto state = std::make_shared<Growth>(Growth{std::move(memory), *std::move(growth)});
  // The record stays: only a request of this session removes it.
  return RunInParts(
      [this, &record, state, max_wr, limit](Reply& answer) -> absl::StatusOr<bool> {
        const absl::StatusOr<bool> has_more =
            shard_->Do(dataplane::ContinueGrowth{*record.srq, state->growth});
        if (!has_more.ok() || *has_more) return has_more;
        record.memory = std::move(state->memory);
        record.layout = state->growth.layout;
        record.max_wr = max_wr;
        answer.As<roci_abi_modify_srq_response>().layout = record.layout;
        answer.Hand(UniqueFd(state->growth.fd.Release()));
        if (limit.has_value()) shard_->Do(dataplane::SetReceiveLimit{*record.srq, *limit});
        return false;
      },
      reply);
}

absl::Status Session::QuerySrq(const Request& request, const FdsPointer&, Reply& reply) {
  const SrqRecord* record = srqs_.Find(request.As<roci_abi_handle_request>().handle);
  if (record == nullptr) return absl::NotFoundError("no such shared receive queue");
  auto& response = reply.As<roci_abi_query_srq_response>();
  response.max_wr = record->max_wr;
  response.max_sge = record->layout.max_sge;
  response.limit = shard_->Do(dataplane::QueryReceiveLimit{*record->srq});
  return absl::OkStatus();
}

absl::Status Session::DestroySrq(const Request& request, const FdsPointer&, Reply& reply) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const SrqRecord* record = srqs_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("no such shared receive queue");
  const absl::StatusOr<dataplane::EventCounts> events =
      shard_->Do(dataplane::DestroySharedReceiveQueue{*record->srq});
  if (!events.ok()) return events.status();
  auto& response = reply.As<roci_abi_destroy_response>();
  response.async_events = KeptAsyncEvents(record->user_handle, events->async_events);
  --pds_.Find(record->pd)->ref_count;
  if (record->xrcd != 0) --xrcds_.Find(record->xrcd)->ref_count;
  srqs_.Remove(handle);
  return absl::OkStatus();
}

}  // namespace roci::control
