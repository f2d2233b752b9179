// Checks of requests for queues and what belongs to them: completion queues, queue pairs, receive
// queues, flow rules, XRC domains, events.
#include <cstring>

#include "control/loop/errno_status.h"
#include "control/session/qp_attributes.h"
#include "control/session/request_checks.h"
#include "roce/flow_key.h"
#include "roce/toeplitz.h"
#include "verbs_provider/abi/tag_matching.h"

namespace roci::control {
namespace {

absl::Status CheckPort(uint32_t port) {
  return port == 1 ? absl::OkStatus() : Invalid("there is only port 1");
}

absl::Status CheckEntries(uint32_t entries, uint32_t most) {
  return entries >= 1 && entries <= most ? absl::OkStatus() : Invalid("invalid number of entries");
}

absl::Status CheckQpFlags(const roci_abi_create_qp_request& create) {
  constexpr uint32_t kOffered = ROCI_ABI_QP_BLOCK_SELF_MULTICAST | ROCI_ABI_QP_WORK_QUEUE;
  if (create.flags & ~kOffered) return absl::UnimplementedError("unsupported creation flags");
  const bool is_datagram = create.qp_type == static_cast<uint32_t>(roce::QpType::kUd);
  if ((create.flags & ROCI_ABI_QP_BLOCK_SELF_MULTICAST) && !is_datagram) {
    return Invalid("invalid creation flags");
  }
  const bool is_raw = create.qp_type == static_cast<uint32_t>(roce::QpType::kRawPacket);
  if ((create.flags & ROCI_ABI_QP_WORK_QUEUE) && (!is_raw || create.max_send_wr != 0)) {
    return Invalid("a work queue cannot have a send queue");
  }
  return absl::OkStatus();
}

absl::Status CheckSrqSize(uint32_t max_wr, uint32_t max_sge, const DeviceLimits& limits) {
  return max_wr >= 1 && max_wr <= limits.max_srq_wr && max_sge <= limits.max_srq_sge
             ? absl::OkStatus()
             : Invalid("the size is 0 or exceeds the limits of the device");
}

}  // namespace

absl::Status CheckCreateCq(const void* request, uint32_t, const DeviceLimits& limits) {
  const auto& create = *static_cast<const roci_abi_create_cq_request*>(request);
  if (create.flags & ~ROCI_ABI_CQ_IGNORE_OVERRUN)
    return absl::UnimplementedError("unsupported flags");
  if (create.comp_vector >= kCompletionVectors) return Invalid("no such completion vector");
  return CheckEntries(create.entries, limits.max_cqe);
}

absl::Status CheckModifyCq(const void* request, uint32_t, const DeviceLimits&) {
  const auto& modify = *static_cast<const roci_abi_modify_cq_request*>(request);
  return modify.count <= kMaxCqModeration && modify.period_us <= kMaxCqModeration
             ? absl::OkStatus()
             : Invalid("invalid moderation");
}

absl::Status CheckResizeCq(const void* request, uint32_t, const DeviceLimits& limits) {
  return CheckEntries(static_cast<const roci_abi_resize_cq_request*>(request)->entries,
                      limits.max_cqe);
}

absl::Status CheckCreateQp(const void* request, uint32_t, const DeviceLimits& limits) {
  const auto& create = *static_cast<const roci_abi_create_qp_request*>(request);
  if (!IsOfferedQpType(create.qp_type) || !limits.HasQpType(create.qp_type))
    return absl::UnimplementedError("unsupported type of queue pair");
  const absl::Status status = CheckQpFlags(create);
  if (!status.ok()) return status;
  if ((create.flags & ROCI_ABI_QP_WORK_QUEUE) != 0 && !limits.Has(Feature::kRss))
    return absl::UnimplementedError("the device does not support work queues");
  // XRC_RECV has no queues, and the numbers have no meaning.
  if (create.qp_type == static_cast<uint32_t>(roce::QpType::kXrcRecv)) return absl::OkStatus();
  if (create.max_send_wr > limits.max_qp_wr || create.max_recv_wr > limits.max_qp_wr ||
      create.max_send_sge > limits.max_sge || create.max_recv_sge > limits.max_sge ||
      create.max_inline > limits.max_inline) {
    return Invalid("a value exceeds the limits of the device");
  }
  return absl::OkStatus();
}

absl::Status CheckModifyQp(const void* request, uint32_t, const DeviceLimits& limits) {
  const uint32_t mask = static_cast<const roci_abi_modify_qp_request*>(request)->mask;
  return (mask & roce::kAttrRateLimit) == 0 || limits.Has(Feature::kPacketPacing)
             ? absl::OkStatus()
             : absl::UnimplementedError("the device does not support packet pacing");
}

absl::Status CheckQueryPort(const void* request, uint32_t, const DeviceLimits&) {
  return CheckPort(static_cast<const roci_abi_query_port_request*>(request)->port);
}

absl::Status CheckMulticast(const void* request, uint32_t, const DeviceLimits&) {
  roce::Gid group;
  std::memcpy(group.bytes.data(), static_cast<const roci_abi_multicast_request*>(request)->gid,
              group.bytes.size());
  return group.IsMulticast() ? absl::OkStatus() : Invalid("not a multicast GID");
}

absl::Status CheckOpenQp(const void* request, uint32_t, const DeviceLimits&) {
  const uint32_t type = static_cast<const roci_abi_open_qp_request*>(request)->qp_type;
  return type == static_cast<uint32_t>(roce::QpType::kXrcRecv)
             ? absl::OkStatus()
             : Invalid("only XRC receive queue pairs can be opened");
}

absl::Status CheckCreateFlow(const void* request, uint32_t, const DeviceLimits&) {
  const auto& create = *static_cast<const roci_abi_create_flow_request*>(request);
  constexpr uint32_t kSniffer = 3;  // the last of enum ibv_flow_attr_type
  constexpr uint32_t kActions = ROCI_ABI_FLOW_DROP | ROCI_ABI_FLOW_COUNT | ROCI_ABI_FLOW_PASS_ON;
  if (const absl::Status status = CheckPort(create.port); !status.ok()) return status;
  if (create.type > kSniffer) return Invalid("unknown type of flow rule");
  if (create.actions & ~kActions) return Invalid("unknown action of a flow rule");
  if ((create.mask.layers | create.value.layers) & ~roce::kFlowLayers)
    return Invalid("invalid layers");
  for (const uint8_t byte : create.mask.reserved) {
    if (byte != 0) return Invalid("unsupported mask of a flow rule");
  }
  // Only plain rules have a match, or pass frames on.
  const bool is_plain = create.type == 0;
  const roci_abi_flow_key nothing{};
  if (!is_plain && (std::memcmp(&create.mask, &nothing, sizeof(nothing)) != 0 ||
                    (create.actions & ROCI_ABI_FLOW_PASS_ON))) {
    return Invalid("a default or sniffer rule must not have a match");
  }
  return absl::OkStatus();
}

absl::Status CheckQueueTable(const void* request, uint32_t, const DeviceLimits&) {
  const auto& create = *static_cast<const roci_abi_create_queue_table_request*>(request);
  return create.log_size <= ROCI_ABI_MAX_QUEUE_TABLE_LOG ? absl::OkStatus()
                                                         : Invalid("the table is too large");
}

absl::Status CheckCreateRssQp(const void* request, uint32_t, const DeviceLimits&) {
  const auto& create = *static_cast<const roci_abi_create_rss_qp_request*>(request);
  return (create.fields & ~roce::kHashFields) == 0
             ? absl::OkStatus()
             : absl::UnimplementedError("unsupported hash fields");
}

absl::Status CheckCreateSrq(const void* request, uint32_t, const DeviceLimits& limits) {
  const auto& create = *static_cast<const roci_abi_create_srq_request*>(request);
  if (create.type > ROCI_ABI_SRQ_XRC)
    return absl::UnimplementedError("unsupported type of receive queue");
  return CheckSrqSize(create.max_wr, create.max_sge, limits);
}

absl::Status CheckCreateTagSrq(const void* request, uint32_t, const DeviceLimits& limits) {
  const auto& create = *static_cast<const roci_abi_create_tag_srq_request*>(request);
  if (create.max_tags < 1 || create.max_tags > ROCI_ABI_MAX_TAGS || create.max_ops < 1 ||
      create.max_ops > ROCI_ABI_MAX_TAG_OPS) {
    return Invalid("invalid number of tags or operations");
  }
  return CheckSrqSize(create.max_wr, create.max_sge, limits);
}

absl::Status CheckModifySrq(const void* request, uint32_t, const DeviceLimits& limits) {
  const auto& modify = *static_cast<const roci_abi_modify_srq_request*>(request);
  if (modify.mask & ~(ROCI_ABI_SRQ_MAX_WR | ROCI_ABI_SRQ_LIMIT))
    return Invalid("unknown attributes in the mask");
  if ((modify.mask & ROCI_ABI_SRQ_MAX_WR) == 0) return absl::OkStatus();
  if (!limits.HasCapabilities(kCapSrqResize)) {
    return absl::UnimplementedError("the device does not resize shared receive queues");
  }
  return CheckSrqSize(modify.max_wr, 0, limits);
}

absl::Status CheckOpenXrcd(const void* request, uint32_t fd_count, const DeviceLimits&) {
  const auto& open = *static_cast<const roci_abi_open_xrcd_request*>(request);
  if (open.has_file > 1 || open.has_file != fd_count) return Invalid("wrong number of descriptors");
  return (open.flags & ~(ROCI_ABI_XRCD_CREATE | ROCI_ABI_XRCD_EXCLUSIVE)) == 0
             ? absl::OkStatus()
             : Invalid("unknown flags");
}

absl::Status CheckReturnEvents(const void* request, uint32_t, const DeviceLimits&) {
  const auto& events = *static_cast<const roci_abi_return_events_request*>(request);
  const bool is_async = events.channel == ROCI_ABI_NO_HANDLE;
  const uint32_t allowed = is_async ? ROCI_ABI_RETURN_HOLD : 0;
  return events.count <= ROCI_ABI_MAX_RETURNED_EVENTS && (events.flags & ~allowed) == 0
             ? absl::OkStatus()
             : Invalid("invalid number of events or unknown flags");
}

}  // namespace roci::control
