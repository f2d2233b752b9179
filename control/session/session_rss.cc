// Session commands for receive side scaling: tables of work queues, and the raw packet queue pairs
// that distribute frames to them.
#include <algorithm>
#include <cstring>

#include "control/loop/privilege.h"
#include "control/session/session.h"

namespace roci::control {

absl::Status Session::CreateQueueTable(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& create = request.As<roci_abi_create_queue_table_request>();
  QueueTableRecord record;
  for (uint32_t i = 0; i < 1u << create.log_size; ++i) {
    const QpRecord* queue = qps_.Find(create.queues[i]);
    if (queue == nullptr) return absl::NotFoundError("no such work queue");
    if (!queue->is_work_queue) return absl::InvalidArgumentError("not a work queue");
    record.queues.push_back(create.queues[i]);
  }
  record.share = QuotaShare(quotas_->queue_tables, 1);
  if (!record.share.ok()) return LimitReached("indirection tables");
  for (const uint32_t queue : record.queues) ++qps_.Find(queue)->ref_count;
  const absl::StatusOr<uint32_t> handle = queue_tables_.Add(std::move(record));
  if (!handle.ok()) return handle.status();
  reply.As<roci_abi_handle_response>().handle = *handle;
  return absl::OkStatus();
}

absl::Status Session::DestroyQueueTable(const Request& request, const FdsPointer&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const QueueTableRecord* record = queue_tables_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("no such indirection table");
  if (record->ref_count > 0)
    return absl::FailedPreconditionError("the indirection table is in use");
  for (const uint32_t queue : record->queues) --qps_.Find(queue)->ref_count;
  queue_tables_.Remove(handle);
  return absl::OkStatus();
}

absl::Status Session::CreateRssQp(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& create = request.As<roci_abi_create_rss_qp_request>();
  if (!MayUseRawPackets()) {
    return absl::PermissionDeniedError("raw packet queue pairs need a privilege");
  }
  QueueTableRecord* table = queue_tables_.Find(create.table);
  if (table == nullptr || FindPd(create.pd) == nullptr) {
    return absl::NotFoundError("no such indirection table or protection domain");
  }
  dataplane::RssConfig rss{.key = {}, .fields = create.fields, .queues = {}};
  static_assert(sizeof(rss.key) == sizeof(create.key));
  std::memcpy(rss.key.data(), create.key, sizeof(create.key));
  for (const uint32_t queue : table->queues) rss.queues.push_back(qps_.Find(queue)->qp);
  dataplane::QueuePairConfig config;
  config.origin = Origin();
  config.type = roce::QpType::kRawPacket;
  config.pd = create.pd;
  config.user_handle = create.user_handle;
  config.max_send_wr = 0;
  config.rss = &rss;
  QpRecord record;
  record.pd = create.pd;
  record.queue_table = create.table;
  const absl::Status status = AddQueuePair(config, std::move(record), reply);
  if (status.ok()) ++table->ref_count;
  return status;
}

}  // namespace roci::control
