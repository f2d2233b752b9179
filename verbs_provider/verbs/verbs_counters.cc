// Counters objects (ibv_create_counters(3)): count the packets and bytes of flow rules. The program
// chooses the index of each value.
#include "verbs_provider/verbs/verbs_counters.h"

#include "verbs_provider/base/allocate.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

VerbsCounters* ToCounters(ibv_counters* counters) {
  return reinterpret_cast<VerbsCounters*>(counters);
}

// Whether a point may be attached: 0 or an errno. The daemon has one pair of counters per object.
// So an object counts either all rules with a count action for it, or one rule to which it is
// attached.
int CheckPoint(const VerbsCounters& counters, const ibv_flow* flow) {
  if (counters.rule_count != 0) return EBUSY;
  if (counters.point_count == VerbsCounters::kMaxPoints) return ENOMEM;
  if (flow == nullptr) return counters.dynamic_flow != 0 ? EBUSY : 0;
  const bool is_attached = counters.dynamic_flow == flow->handle;
  return is_attached || counters.point_count == 0 ? 0 : EOPNOTSUPP;
}

int AttachTo(VerbsCounters* counters, const ibv_flow& flow) {
  roci_abi_attach_counters_request request = {};
  roci_abi_plain_response response = {};
  request.flow = flow.handle;
  request.counters = counters->handle;
  const int error = counters->session->client.Call(ROCI_ABI_ATTACH_COUNTERS, &request, &response);
  if (error == 0) counters->dynamic_flow = flow.handle;
  return error;
}

}  // namespace

ibv_counters* CreateCounters(ibv_context* context, ibv_counters_init_attr* attr) {
  if (attr->comp_mask != 0) return Fail(EOPNOTSUPP);
  auto* counters = Allocate<VerbsCounters>();
  if (counters == nullptr) return nullptr;
  counters->session = SessionOf(context);
  counters->counters.context = context;
  roci_abi_plain_request request = {};
  roci_abi_handle_response response = {};
  const int error = counters->session->client.Call(ROCI_ABI_CREATE_COUNTERS, &request, &response);
  if (error != 0) {
    Free(counters);
    return Fail(error);
  }
  counters->handle = response.handle;
  return &counters->counters;
}

int DestroyCounters(ibv_counters* ibcounters) {
  VerbsCounters* counters = ToCounters(ibcounters);
  VerbsSession* session = counters->session;
  const int error = CallWithHandle(session->client, ROCI_ABI_DESTROY_COUNTERS, counters->handle);
  if (!IsGone(session, error)) return error;
  Free(counters);
  return 0;
}

// With `flow`, that rule counts into the object from now on. Without, the point is for the rules
// that are created with a count action for the object.
int AttachCounters(ibv_counters* ibcounters, ibv_counter_attach_attr* attr, ibv_flow* flow) {
  VerbsCounters* counters = ToCounters(ibcounters);
  if (attr->comp_mask != 0) return EOPNOTSUPP;
  const auto description = static_cast<uint32_t>(attr->counter_desc);
  if (description != IBV_COUNTER_PACKETS && description != IBV_COUNTER_BYTES) return EOPNOTSUPP;
  const SpinGuard guard(counters->lock);
  int error = CheckPoint(*counters, flow);
  if (error == 0 && flow != nullptr) error = AttachTo(counters, *flow);
  if (error != 0) return error;
  counters->points[counters->point_count++] = {attr->index, attr->counter_desc};
  return 0;
}

int AddRule(VerbsCounters* counters) {
  const SpinGuard guard(counters->lock);
  if (counters->dynamic_flow != 0) return EOPNOTSUPP;
  ++counters->rule_count;
  return 0;
}

void RemoveRule(VerbsCounters* counters) {
  const SpinGuard guard(counters->lock);
  --counters->rule_count;
}

// Adds the values of points with the same index. Does not change values at indices without a point.
int ReadCounters(ibv_counters* ibcounters, uint64_t* values, uint32_t count, uint32_t flags) {
  VerbsCounters* counters = ToCounters(ibcounters);
  if ((flags & ~uint32_t{IBV_READ_COUNTERS_ATTR_PREFER_CACHED}) != 0) return EOPNOTSUPP;
  roci_abi_handle_request request = {};
  roci_abi_read_counters_response response = {};
  request.handle = counters->handle;
  const int error = counters->session->client.Call(ROCI_ABI_READ_COUNTERS, &request, &response);
  if (error != 0) return error;
  const SpinGuard guard(counters->lock);
  for (uint32_t i = 0; i < counters->point_count; ++i) {
    if (counters->points[i].index >= count) return EINVAL;
  }
  for (uint32_t i = 0; i < counters->point_count; ++i) values[counters->points[i].index] = 0;
  for (uint32_t i = 0; i < counters->point_count; ++i) {
    const VerbsCounters::Point& point = counters->points[i];
    values[point.index] +=
        point.description == IBV_COUNTER_PACKETS ? response.packets : response.bytes;
  }
  return 0;
}

}  // namespace roci::provider
