// Session commands for flow rules and their counters objects. Errors are those of Linux's
// create_flow.
#include <bit>
#include <cstring>

#include "control/loop/privilege.h"
#include "control/session/session.h"

namespace roci::control {
namespace {

static_assert(sizeof(roci_abi_flow_key) == sizeof(roce::FlowKey));
static_assert(offsetof(roci_abi_flow_key, src_ip) == offsetof(roce::FlowKey, src_ip));
static_assert(offsetof(roci_abi_flow_key, flow_label) == offsetof(roce::FlowKey, flow_label));
static_assert(offsetof(roci_abi_flow_key, src_port) == offsetof(roce::FlowKey, src_port));
static_assert(offsetof(roci_abi_flow_key, layers) == offsetof(roce::FlowKey, layers));
static_assert(ROCI_ABI_FLOW_UDP == roce::kFlowLayerUdp);

dataplane::FlowRule RuleOf(const roci_abi_create_flow_request& create) {
  dataplane::FlowRule rule;
  rule.kind = static_cast<dataplane::FlowKind>(create.type);
  rule.priority = create.priority;
  rule.passes_on = (create.actions & ROCI_ABI_FLOW_PASS_ON) != 0;
  rule.drops = (create.actions & ROCI_ABI_FLOW_DROP) != 0;
  rule.tag = create.tag;
  rule.mask = std::bit_cast<roce::FlowKey>(create.mask);
  rule.value = roce::Masked(std::bit_cast<roce::FlowKey>(create.value), rule.mask);
  return rule;
}

}  // namespace

InstalledFlow::~InstalledFlow() {
  if (device_ != nullptr) device_->dataplane().Do(dataplane::RemoveFlow{id_});
}

absl::Status Session::CreateFlow(const Request& request, const FdsPointer&, Reply& reply) {
  const auto& create = request.As<roci_abi_create_flow_request>();
  if (!MayUseRawPackets()) return absl::PermissionDeniedError("flow rules need a privilege");
  QpRecord* qp = qps_.Find(create.qp);
  if (qp == nullptr) return absl::NotFoundError("no such queue pair");
  if (qp->type != roce::QpType::kRawPacket || qp->is_work_queue) {
    return absl::InvalidArgumentError("unsupported for this type of queue pair");
  }
  CountersRecord* counters = nullptr;
  if (create.actions & ROCI_ABI_FLOW_COUNT) {
    counters = counters_.Find(create.counters);
    if (counters == nullptr) return absl::NotFoundError("no such counters object");
  }
  FlowRecord record;
  record.share = QuotaShare(quotas_->flows, 1);
  if (!record.share.ok()) return LimitReached("flow rules");
  dataplane::FlowRule rule = RuleOf(create);
  rule.qp = qp->qp;
  if (counters != nullptr) rule.counters = counters->values.get();
  const absl::StatusOr<dataplane::FlowId> added = device_->dataplane().Do(dataplane::AddFlow{rule});
  if (!added.ok()) return added.status();
  record.rule = InstalledFlow(*device_, *added);
  record.qp = create.qp;
  record.counters = counters != nullptr ? create.counters : 0;
  const absl::StatusOr<uint32_t> handle = flows_.Add(std::move(record));
  if (!handle.ok()) return handle.status();
  ++qp->ref_count;
  if (counters != nullptr) ++counters->ref_count;
  reply.As<roci_abi_handle_response>().handle = *handle;
  return absl::OkStatus();
}

absl::Status Session::DestroyFlow(const Request& request, const FdsPointer&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const FlowRecord* record = flows_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("no such flow rule");
  --qps_.Find(record->qp)->ref_count;
  if (record->counters != 0) --counters_.Find(record->counters)->ref_count;
  flows_.Remove(handle);
  return absl::OkStatus();
}

absl::Status Session::CreateCounters(const Request&, const FdsPointer&, Reply& reply) {
  CountersRecord record;
  record.share = QuotaShare(quotas_->counters, 1);
  if (!record.share.ok()) return LimitReached("counters");
  record.values = std::make_unique<dataplane::FlowCounters>();
  const absl::StatusOr<uint32_t> handle = counters_.Add(std::move(record));
  if (!handle.ok()) return handle.status();
  reply.As<roci_abi_handle_response>().handle = *handle;
  return absl::OkStatus();
}

absl::Status Session::DestroyCounters(const Request& request, const FdsPointer&, Reply&) {
  const uint32_t handle = request.As<roci_abi_handle_request>().handle;
  const CountersRecord* record = counters_.Find(handle);
  if (record == nullptr) return absl::NotFoundError("no such counters object");
  if (record->ref_count > 0) return absl::FailedPreconditionError("the counters object is in use");
  counters_.Remove(handle);
  return absl::OkStatus();
}

absl::Status Session::AttachCounters(const Request& request, const FdsPointer&, Reply&) {
  const auto& attach = request.As<roci_abi_attach_counters_request>();
  FlowRecord* flow = flows_.Find(attach.flow);
  CountersRecord* counters = counters_.Find(attach.counters);
  if (flow == nullptr || counters == nullptr) {
    return absl::NotFoundError("no such flow rule or counters");
  }
  if (flow->counters == attach.counters) return absl::OkStatus();  // another counting point
  if (flow->counters != 0) {
    return absl::FailedPreconditionError("the rule has another counters object");
  }
  device_->dataplane().Do(dataplane::CountFlow{flow->rule.id(), *counters->values});
  flow->counters = attach.counters;
  ++counters->ref_count;
  return absl::OkStatus();
}

absl::Status Session::ReadCounters(const Request& request, const FdsPointer&, Reply& reply) {
  const CountersRecord* record = counters_.Find(request.As<roci_abi_handle_request>().handle);
  if (record == nullptr) return absl::NotFoundError("no such counters object");
  auto& response = reply.As<roci_abi_read_counters_response>();
  for (const dataplane::FlowCounters::PerLcore& lcore : record->values->lcores) {
    response.packets += lcore.packets.value();
    response.bytes += lcore.bytes.value();
  }
  return absl::OkStatus();
}

}  // namespace roci::control
