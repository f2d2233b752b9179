// Flow rules (ibv_create_flow(3)): translates the specifications of an ibv_flow_attr to one value
// and mask for the daemon.
#include <cstring>

#include "verbs_provider/base/allocate.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_counters.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

struct Flow {
  ibv_flow flow;  // first
  VerbsSession* session;
  VerbsCounters* counters;  // of the rule's count action, or null
};

// Linux' limit.
constexpr uint32_t kMaxSpecs = 10;

// A rule that is being built.
struct Builder {
  roci_abi_create_flow_request request;
  uint32_t seen;  // layers and actions: kSeen*
  VerbsCounters* counters;
};
constexpr uint32_t kSeenEthernet = 1, kSeenIp = 2, kSeenPorts = 4, kSeenTag = 8, kSeenDrop = 16,
                   kSeenCount = 32;

// Checks that each layer and action occurs at most once. 0 or EINVAL.
int MarkSeen(Builder* builder, uint32_t what) {
  const bool again = (builder->seen & what) != 0;
  builder->seen |= what;
  return again ? EINVAL : 0;
}

void RequireLayer(Builder* builder, uint8_t layer) {
  builder->request.mask.layers |= layer;
  builder->request.value.layers |= layer;
}

void PutEthernet(const ibv_flow_eth_filter& from, roci_abi_flow_key* to) {
  memcpy(to->dst_mac, from.dst_mac, sizeof(to->dst_mac));
  memcpy(to->src_mac, from.src_mac, sizeof(to->src_mac));
  to->ether_type = from.ether_type;
  to->vlan_tci = from.vlan_tag;
}

int AddEthernet(Builder* builder, const ibv_flow_spec_eth& spec) {
  PutEthernet(spec.val, &builder->request.value);
  PutEthernet(spec.mask, &builder->request.mask);
  if (spec.mask.vlan_tag != 0) RequireLayer(builder, ROCI_ABI_FLOW_VLAN);
  return MarkSeen(builder, kSeenEthernet);
}

template <class Filter>
void PutIpv4(const Filter& from, roci_abi_flow_key* to) {
  memcpy(to->src_ip, &from.src_ip, 4);
  memcpy(to->dst_ip, &from.dst_ip, 4);
}

int AddIpv4(Builder* builder, const ibv_flow_spec_ipv4& spec) {
  PutIpv4(spec.val, &builder->request.value);
  PutIpv4(spec.mask, &builder->request.mask);
  RequireLayer(builder, ROCI_ABI_FLOW_IPV4);
  return MarkSeen(builder, kSeenIp);
}

void PutIpv4Ext(const ibv_flow_ipv4_ext_filter& from, roci_abi_flow_key* to) {
  PutIpv4(from, to);
  to->protocol = from.proto;
  to->traffic_class = from.tos;
  to->hop_limit = from.ttl;
  to->ip_flags = from.flags;
}

int AddIpv4Ext(Builder* builder, const ibv_flow_spec_ipv4_ext& spec) {
  PutIpv4Ext(spec.val, &builder->request.value);
  PutIpv4Ext(spec.mask, &builder->request.mask);
  RequireLayer(builder, ROCI_ABI_FLOW_IPV4);
  return MarkSeen(builder, kSeenIp);
}

void PutIpv6(const ibv_flow_ipv6_filter& from, roci_abi_flow_key* to) {
  memcpy(to->src_ip, from.src_ip, 16);
  memcpy(to->dst_ip, from.dst_ip, 16);
  to->flow_label = from.flow_label;
  to->protocol = from.next_hdr;
  to->traffic_class = from.traffic_class;
  to->hop_limit = from.hop_limit;
}

int AddIpv6(Builder* builder, const ibv_flow_spec_ipv6& spec) {
  PutIpv6(spec.val, &builder->request.value);
  PutIpv6(spec.mask, &builder->request.mask);
  RequireLayer(builder, ROCI_ABI_FLOW_IPV6);
  return MarkSeen(builder, kSeenIp);
}

int AddPorts(Builder* builder, const ibv_flow_spec_tcp_udp& spec) {
  builder->request.value.src_port = spec.val.src_port;
  builder->request.value.dst_port = spec.val.dst_port;
  builder->request.mask.src_port = spec.mask.src_port;
  builder->request.mask.dst_port = spec.mask.dst_port;
  RequireLayer(builder, spec.type == IBV_FLOW_SPEC_TCP ? ROCI_ABI_FLOW_TCP : ROCI_ABI_FLOW_UDP);
  return MarkSeen(builder, kSeenPorts);
}

int AddTag(Builder* builder, const ibv_flow_spec_action_tag& spec) {
  // Completions have 24 bits for the tag.
  if (spec.tag_id > 0xFFFFFF) return EINVAL;
  builder->request.tag = spec.tag_id;
  return MarkSeen(builder, kSeenTag);
}

int AddCount(Builder* builder, const ibv_flow_spec_counter_action& spec) {
  if (spec.counters == nullptr) return EINVAL;
  builder->counters = reinterpret_cast<VerbsCounters*>(spec.counters);
  builder->request.counters = builder->counters->handle;
  builder->request.actions |= ROCI_ABI_FLOW_COUNT;
  return MarkSeen(builder, kSeenCount);
}

int AddDrop(Builder* builder) {
  builder->request.actions |= ROCI_ABI_FLOW_DROP;
  return MarkSeen(builder, kSeenDrop);
}

template <class Spec>
const Spec* As(const ibv_flow_spec* spec) {
  return spec->hdr.size == sizeof(Spec) ? reinterpret_cast<const Spec*>(spec) : nullptr;
}

template <class Spec>
int Add(Builder* builder, const ibv_flow_spec* spec, int (*add)(Builder*, const Spec&)) {
  const Spec* typed = As<Spec>(spec);
  return typed == nullptr ? EINVAL : add(builder, *typed);
}

int AddSpec(Builder* builder, const ibv_flow_spec* spec) {
  switch (static_cast<uint32_t>(spec->hdr.type)) {
    case IBV_FLOW_SPEC_ETH:
      return Add(builder, spec, AddEthernet);
    case IBV_FLOW_SPEC_IPV4:
      return Add(builder, spec, AddIpv4);
    case IBV_FLOW_SPEC_IPV4_EXT:
      return Add(builder, spec, AddIpv4Ext);
    case IBV_FLOW_SPEC_IPV6:
      return Add(builder, spec, AddIpv6);
    case IBV_FLOW_SPEC_TCP:
    case IBV_FLOW_SPEC_UDP:
      return Add(builder, spec, AddPorts);
    case IBV_FLOW_SPEC_ACTION_TAG:
      return Add(builder, spec, AddTag);
    case IBV_FLOW_SPEC_ACTION_COUNT:
      return Add(builder, spec, AddCount);
    case IBV_FLOW_SPEC_ACTION_DROP:
      return As<ibv_flow_spec_action_drop>(spec) == nullptr ? EINVAL : AddDrop(builder);
    default:  // tunnels, ESP, MPLS, inner headers
      return EOPNOTSUPP;
  }
}

// The specifications follow the attribute in memory.
int AddSpecs(Builder* builder, const ibv_flow_attr& attr) {
  if (attr.num_of_specs > kMaxSpecs) return EINVAL;
  const auto* at = reinterpret_cast<const std::byte*>(&attr + 1);
  for (uint32_t i = 0; i < attr.num_of_specs; ++i) {
    const auto* spec = reinterpret_cast<const ibv_flow_spec*>(at);
    const int error = AddSpec(builder, spec);
    if (error != 0) return error;
    at += spec->hdr.size;
  }
  return 0;
}

int Build(Builder* builder, const ibv_qp& qp, const ibv_flow_attr& attr) {
  if (attr.comp_mask != 0) return EINVAL;
  if ((attr.flags & ~uint32_t{IBV_FLOW_ATTR_FLAGS_DONT_TRAP}) != 0) return EOPNOTSUPP;
  roci_abi_create_flow_request& request = builder->request;
  request.qp = qp.handle;
  request.type = attr.type;
  request.port = attr.port;
  request.priority = attr.priority;
  if ((attr.flags & IBV_FLOW_ATTR_FLAGS_DONT_TRAP) != 0) {
    request.actions |= ROCI_ABI_FLOW_PASS_ON;
  }
  return AddSpecs(builder, attr);
}

}  // namespace

ibv_flow* CreateFlow(ibv_qp* qp, ibv_flow_attr* attr) {
  Builder builder = {};
  int error = Build(&builder, *qp, *attr);
  if (error != 0) return Fail(error);
  auto* flow = Allocate<Flow>();
  if (flow == nullptr) return nullptr;
  flow->session = ToQp(qp)->session;
  flow->counters = builder.counters;
  roci_abi_handle_response response = {};
  error = flow->counters != nullptr ? AddRule(flow->counters) : 0;
  if (error == 0) {
    error = flow->session->client.Call(ROCI_ABI_CREATE_FLOW, &builder.request, &response);
    if (error != 0 && flow->counters != nullptr) RemoveRule(flow->counters);
  }
  if (error != 0) {
    Free(flow);
    return Fail(error);
  }
  flow->flow.context = qp->context;
  flow->flow.handle = response.handle;
  return &flow->flow;
}

int DestroyFlow(ibv_flow* ibflow) {
  auto* flow = reinterpret_cast<Flow*>(ibflow);
  const int error = CallWithHandle(flow->session->client, ROCI_ABI_DESTROY_FLOW, ibflow->handle);
  if (!IsGone(flow->session, error)) return error;
  if (flow->counters != nullptr) RemoveRule(flow->counters);
  Free(flow);
  return 0;
}

}  // namespace roci::provider
