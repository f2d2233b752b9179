// Session commands about completion channels and completion queues.
#include <array>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "control/loop/errno_status.h"
#include "control/loop/event_socket.h"
#include "control/session/session.h"
#include "dataplane/qp/queue_layouts.h"

namespace roci::control {
namespace {

// RESIZE_CQ is answered as CREATE_CQ is.
template <class Response>
void DescribeRing(const dataplane::CompletionQueueInfo& info, Response& out) {
  out.capacity = info.capacity;
  out.entries = info.capacity;
  out.entries_offset = info.entries_offset;
  out.memory_size = info.memory_size;
}

}  // namespace

uint32_t Session::KeptAsyncEvents(uint64_t user_handle, uint32_t sent) {
  return sent == 0 ? 0 : sent - shard_->Do(dataplane::WithdrawAsyncEvents{user_handle});
}

// HELLO has started the writer.
std::shared_ptr<dataplane::EventSocket> Session::MakeEventSocket(UniqueFd sending) const {
  return std::make_shared<dataplane::EventSocket>(dataplane::Fd(sending.Release()),
                                                  admission_.user->event_writer);
}

absl::Status Session::CreateChannel(const Request&, const FdsPointer&, Reply& reply) {
  UniqueFd receiving;
  ChannelRecord record;
  record.descriptors = QuotaShare(admission_.user->descriptors, ChannelRecord::kDescriptors);
  if (!record.descriptors.ok()) return StatusFromErrno(ENFILE, "completion channels");
  UniqueFd sending;
  const absl::Status status = OpenEventSocket(sending, receiving);
  if (!status.ok()) return status;
  record.socket = MakeEventSocket(std::move(sending));
  const absl::StatusOr<uint32_t> handle = channels_.Add(std::move(record));
  if (!handle.ok()) return handle.status();
  reply.As<roci_abi_handle_response>().handle = *handle;
  reply.Hand(std::move(receiving));
  return absl::OkStatus();
}

absl::Status Session::DestroyChannel(const Request& request, const FdsPointer&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const ChannelRecord* channel = channels_.Find(handle);
  if (channel == nullptr) return absl::NotFoundError("no such completion channel");
  if (channel->ref_count > 0)
    return absl::FailedPreconditionError("the completion channel is in use");
  channels_.Remove(handle);
  return absl::OkStatus();
}

absl::Status Session::CreateCq(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& create = request.As<roci_abi_create_cq_request>();
  ChannelRecord* channel = nullptr;
  if (create.channel != ROCI_ABI_NO_HANDLE) {
    channel = channels_.Find(create.channel);
    if (channel == nullptr) return absl::NotFoundError("no such completion channel");
  }
  CqRecord record;
  record.share = QuotaShare(quotas_->cqs, 1);
  if (!record.share.ok()) return LimitReached("completion queues", "limits.max_cq");
  record.memory = admission_.user->TakeRings(dataplane::CompletionRingBytes(create.entries));
  if (!record.memory.ok()) return RingShare::Refusal();
  absl::StatusOr<dataplane::CreatedCompletionQueue> created =
      shard_->Do(dataplane::CreateCompletionQueue{
          create.entries, create.user_handle, channel != nullptr ? channel->socket : nullptr,
          (create.flags & ROCI_ABI_CQ_IGNORE_OVERRUN) != 0});
  if (!created.ok()) return created.status();
  record.cq = created->completion_queue;
  record.user_handle = create.user_handle;
  record.channel = channel != nullptr ? create.channel : 0;
  if (channel != nullptr) ++channel->ref_count;
  auto& response = reply.As<roci_abi_create_cq_response>();
  DescribeRing(shard_->Do(dataplane::InspectCompletionQueue{*record.cq}), response);
  response.handle = *cqs_.Add(std::move(record));
  reply.Hand(UniqueFd(created->memory.Release()));
  return absl::OkStatus();
}

absl::Status Session::ResizeCq(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& resize = request.As<roci_abi_resize_cq_request>();
  CqRecord* record = cqs_.Find(resize.handle);
  if (record == nullptr) return absl::NotFoundError("no such completion queue");
  RingShare memory = admission_.user->TakeRings(dataplane::CompletionRingBytes(resize.entries));
  if (!memory.ok()) return RingShare::Refusal();
  absl::StatusOr<dataplane::CompletionQueueMove> move =
      shard_->Do(dataplane::ResizeCompletionQueue{*record->cq, resize.entries, resize.consumer});
  if (!move.ok()) return move.status();
  struct Resize {
    RingShare memory;
    dataplane::CompletionQueueMove move;
  };
  auto state = std::make_shared<Resize>(Resize{std::move(memory), *std::move(move)});
  // The record stays: only a request of this session removes it.
  return RunInParts(
      [this, record, state](Reply& answer) -> absl::StatusOr<bool> {
        const absl::StatusOr<bool> has_more =
            shard_->Do(dataplane::ContinueMove{*record->cq, state->move});
        if (!has_more.ok() || *has_more) return has_more;
        record->memory = std::move(state->memory);
        DescribeRing(shard_->Do(dataplane::InspectCompletionQueue{*record->cq}),
                     answer.As<roci_abi_resize_cq_response>());
        answer.Hand(UniqueFd(state->move.fd.Release()));
        return false;
      },
      reply);
}

absl::Status Session::ModifyCq(const Request& request, const FdsPointer&, Reply&) {
  const auto& modify = request.As<roci_abi_modify_cq_request>();
  const CqRecord* record = cqs_.Find(modify.handle);
  if (record == nullptr) return absl::NotFoundError("no such completion queue");
  shard_->Do(dataplane::ModerateCompletionQueue{
      *record->cq, {modify.count, uint64_t{modify.period_us} * roce::kNsPerUs}});
  return absl::OkStatus();
}

absl::Status Session::DestroyCq(const Request& request, const FdsPointer&, Reply& reply) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const CqRecord* record = cqs_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("no such completion queue");
  const absl::StatusOr<dataplane::EventCounts> events =
      shard_->Do(dataplane::DestroyCompletionQueue{*record->cq});
  if (!events.ok()) return events.status();
  auto& response = reply.As<roci_abi_destroy_response>();
  response.comp_events = events->comp_events;
  response.async_events = KeptAsyncEvents(record->user_handle, events->async_events);
  if (record->channel != 0) --channels_.Find(record->channel)->ref_count;
  cqs_.Remove(handle);
  return absl::OkStatus();
}

// The program may have destroyed their objects.
absl::Status Session::ReturnEvents(const Request& request, const FdsPointer&, Reply&) {
  const auto& returned = request.As<roci_abi_return_events_request>();
  const std::span events(returned.events, returned.count);
  if (returned.channel == ROCI_ABI_NO_HANDLE) {
    shard_->Do(dataplane::ReturnAsyncEvents{events, (returned.flags & ROCI_ABI_RETURN_HOLD) != 0});
    return absl::OkStatus();
  }
  if (channels_.Find(returned.channel) == nullptr) {
    return absl::NotFoundError("no such completion channel");
  }
  std::array<dataplane::CompletionQueue*, ROCI_ABI_MAX_RETURNED_EVENTS> queues;
  size_t count = 0;
  for (const roci_abi_async_event& event : events) {
    if (event.element > UINT32_MAX) continue;
    const CqRecord* record = cqs_.Find(static_cast<uint32_t>(event.element));
    if (record != nullptr && record->channel == returned.channel) queues[count++] = record->cq;
  }
  shard_->Do(dataplane::ReturnCompletionEvents{std::span(queues).first(count)});
  return absl::OkStatus();
}

}  // namespace roci::control
