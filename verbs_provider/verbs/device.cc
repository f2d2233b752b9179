// Queries of a device's and a port's attributes.
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "verbs_provider/base/clock.h"
#include "verbs_provider/verbs/objects.h"
#include "verbs_provider/verbs/verbs_ops.h"

namespace roci::provider {
namespace {

void FillDevice(const roci_abi_query_device_response& from, ibv_device_attr* to) {
  memcpy(to->fw_ver, from.fw_ver, sizeof(to->fw_ver));
  to->fw_ver[sizeof(to->fw_ver) - 1] = '\0';
  to->node_guid = from.node_guid;
  to->sys_image_guid = from.sys_image_guid;
  to->max_mr_size = from.max_mr_size;
  to->page_size_cap = from.page_size_cap;
  to->vendor_id = from.vendor_id;
  to->vendor_part_id = from.vendor_part_id;
  to->hw_ver = from.hw_ver;
  to->max_qp = static_cast<int>(from.max_qp);
  to->max_qp_wr = static_cast<int>(from.max_qp_wr);
  to->device_cap_flags = static_cast<unsigned>(from.device_cap_flags);
  to->max_sge = static_cast<int>(from.max_sge);
  to->max_sge_rd = static_cast<int>(from.max_sge_rd);
  to->max_cq = static_cast<int>(from.max_cq);
  to->max_cqe = static_cast<int>(from.max_cqe);
  to->max_mr = static_cast<int>(from.max_mr);
  to->max_pd = static_cast<int>(from.max_pd);
  to->max_qp_rd_atom = static_cast<int>(from.max_qp_rd_atom);
  to->max_res_rd_atom = static_cast<int>(from.max_res_rd_atom);
  to->max_qp_init_rd_atom = static_cast<int>(from.max_qp_init_rd_atom);
  to->atomic_cap = static_cast<ibv_atomic_cap>(from.atomic_cap);
  to->max_mw = static_cast<int>(from.max_mw);
  to->max_mcast_grp = static_cast<int>(from.max_mcast_grp);
  to->max_mcast_qp_attach = static_cast<int>(from.max_mcast_qp_attach);
  to->max_total_mcast_qp_attach = static_cast<int>(from.max_total_mcast_qp_attach);
  to->max_ah = static_cast<int>(from.max_ah);
  to->max_srq = static_cast<int>(from.max_srq);
  to->max_srq_wr = static_cast<int>(from.max_srq_wr);
  to->max_srq_sge = static_cast<int>(from.max_srq_sge);
  to->max_pkeys = static_cast<uint16_t>(from.max_pkeys);
  to->local_ca_ack_delay = from.local_ca_ack_delay;
  to->phys_port_cnt = from.phys_port_cnt;
}

void FillTagMatching(const roci_abi_query_device_response& from, ibv_tm_caps* to) {
  to->max_rndv_hdr_size = from.max_rndv_header;
  to->max_num_tags = from.max_tags;
  to->flags = from.max_tags > 0 ? uint32_t{IBV_TM_CAP_RC} : 0;
  to->max_ops = from.max_tag_ops;
  to->max_sge = from.max_tag_sge;
}

// All operations of all transports support on-demand paging, because the daemon reaches memory by
// address. (A personality may lack it.)
void FillOnDemand(ibv_device_attr_ex* attr) {
  const bool has_srq = attr->orig_attr.max_srq > 0;
  const bool has_xrc = (attr->orig_attr.device_cap_flags & IBV_DEVICE_XRC) != 0;
  const uint32_t srq = has_srq ? uint32_t{IBV_ODP_SUPPORT_SRQ_RECV} : 0;
  const uint32_t datagram = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | srq;
  const uint32_t reliable =
      datagram | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
  attr->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  attr->odp_caps.per_transport_caps.rc_odp_caps = reliable;
  attr->odp_caps.per_transport_caps.uc_odp_caps = datagram | IBV_ODP_SUPPORT_WRITE;
  attr->odp_caps.per_transport_caps.ud_odp_caps = datagram;
  attr->xrc_odp_caps = has_xrc ? reliable : 0;
}

void FillRaw(const roci_abi_query_device_response& from, ibv_device_attr_ex* to) {
  to->rss_caps.supported_qpts = from.rss_qp_types;
  to->rss_caps.max_rwq_indirection_tables = from.max_queue_tables;
  to->rss_caps.max_rwq_indirection_table_size = from.max_queue_table_size;
  to->rss_caps.rx_hash_fields_mask = from.rss_fields;
  to->rss_caps.rx_hash_function = static_cast<uint8_t>(from.rss_functions);
  to->max_wq_type_rq = from.max_work_queues;
  to->packet_pacing_caps.qp_rate_limit_min = from.min_rate_kbps;
  to->packet_pacing_caps.qp_rate_limit_max = from.max_rate_kbps;
  to->packet_pacing_caps.supported_qpts = from.rate_qp_types;
  if ((from.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM) != 0) {
    to->raw_packet_caps = IBV_RAW_PACKET_CAP_IP_CSUM;
  }
}

}  // namespace

int QueryDevice(ibv_context* context, const ibv_query_device_ex_input* input,
                ibv_device_attr_ex* attr, size_t attr_size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  roci_abi_query_device_request request = {};
  roci_abi_query_device_response response = {};
  const int error = SessionOf(context)->client.Call(ROCI_ABI_QUERY_DEVICE, &request, &response);
  if (error != 0) return error;
  ibv_device_attr_ex all = {};
  FillDevice(response, &all.orig_attr);
  all.completion_timestamp_mask = response.completion_timestamp_mask;
  all.hca_core_clock = response.hca_core_clock_khz;
  all.device_cap_flags_ex = response.device_cap_flags_ex;
  all.phys_port_cnt_ex = response.phys_port_cnt;
  all.max_dm_size = response.max_dm_size;
  if ((response.flags & ROCI_ABI_DEVICE_NO_ON_DEMAND_PAGING) == 0) FillOnDemand(&all);
  all.cq_mod_caps.max_cq_count = static_cast<uint16_t>(response.max_cq_count);
  all.cq_mod_caps.max_cq_period = static_cast<uint16_t>(response.max_cq_period);
  FillRaw(response, &all);
  FillTagMatching(response, &all.tm_caps);
  // Programs built with other headers have a shorter or longer structure.
  memset(attr, 0, attr_size);
  memcpy(attr, &all, std::min(attr_size, sizeof(all)));
  return 0;
}

// The clock of completion timestamps is CLOCK_MONOTONIC in ns.
int QueryRtValues(ibv_context*, ibv_values_ex* values) {
  const bool wanted = (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) != 0;
  values->comp_mask = 0;
  if (!wanted) return 0;
  values->raw_clock.tv_sec = 0;
  values->raw_clock.tv_nsec = static_cast<long>(ClockNs(CLOCK_MONOTONIC));
  values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  return 0;
}

int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) {
  roci_abi_query_port_request request = {};
  roci_abi_query_port_response response = {};
  request.port = port;
  const int error = SessionOf(context)->client.Call(ROCI_ABI_QUERY_PORT, &request, &response);
  if (error != 0) return error;
  // Later versions of the structure are longer, and so may be the one that this was compiled with.
  memset(attr, 0, offsetof(ibv_port_attr, port_cap_flags2) + sizeof(attr->port_cap_flags2));
  attr->state = static_cast<ibv_port_state>(response.state);
  attr->max_mtu = static_cast<ibv_mtu>(response.max_mtu);
  attr->active_mtu = static_cast<ibv_mtu>(response.active_mtu);
  attr->gid_tbl_len = static_cast<int>(response.gid_table_length);
  attr->port_cap_flags = response.port_cap_flags;
  attr->max_msg_sz = response.max_message_size;
  attr->bad_pkey_cntr = response.bad_pkey_counter;
  attr->qkey_viol_cntr = response.qkey_violation_counter;
  attr->pkey_tbl_len = response.pkey_table_length;
  attr->max_vl_num = response.max_vl_num;
  attr->active_width = response.active_width;
  attr->active_speed = response.active_speed;
  attr->phys_state = response.phys_state;
  attr->link_layer = response.link_layer;
  attr->flags = response.flags;
  attr->port_cap_flags2 = static_cast<uint16_t>(response.port_cap_flags2);
  return 0;
}

}  // namespace roci::provider
