// Copies queue pair attributes and address vectors field by field.
#include "verbs_provider/verbs/qp_attributes.h"

#include <cstring>

namespace roci::provider {

roci_abi_ah_attr ToAbi(const ibv_ah_attr& attr) {
  roci_abi_ah_attr abi = {};
  static_assert(sizeof(abi.dgid) == sizeof(attr.grh.dgid));
  memcpy(abi.dgid, attr.grh.dgid.raw, sizeof(abi.dgid));
  abi.flow_label = attr.grh.flow_label;
  abi.dlid = attr.dlid;
  abi.sgid_index = attr.grh.sgid_index;
  abi.hop_limit = attr.grh.hop_limit;
  abi.traffic_class = attr.grh.traffic_class;
  abi.sl = attr.sl;
  abi.src_path_bits = attr.src_path_bits;
  abi.static_rate = attr.static_rate;
  abi.is_global = attr.is_global;
  abi.port = attr.port_num;
  return abi;
}

ibv_ah_attr FromAbi(const roci_abi_ah_attr& abi) {
  ibv_ah_attr attr = {};
  memcpy(attr.grh.dgid.raw, abi.dgid, sizeof(abi.dgid));
  attr.grh.flow_label = abi.flow_label;
  attr.grh.sgid_index = abi.sgid_index;
  attr.grh.hop_limit = abi.hop_limit;
  attr.grh.traffic_class = abi.traffic_class;
  attr.dlid = abi.dlid;
  attr.sl = abi.sl;
  attr.src_path_bits = abi.src_path_bits;
  attr.static_rate = abi.static_rate;
  attr.is_global = abi.is_global;
  attr.port_num = abi.port;
  return attr;
}

roci_abi_qp_attr ToAbi(const ibv_qp_attr& attr, uint32_t mask) {
  roci_abi_qp_attr abi = {};
  const auto has = [mask](uint32_t bit) { return (mask & bit) != 0; };
  if (has(IBV_QP_STATE)) abi.state = attr.qp_state;
  if (has(IBV_QP_CUR_STATE)) abi.cur_state = attr.cur_qp_state;
  if (has(IBV_QP_EN_SQD_ASYNC_NOTIFY)) abi.en_sqd_async_notify = attr.en_sqd_async_notify;
  if (has(IBV_QP_ACCESS_FLAGS)) abi.access_flags = attr.qp_access_flags;
  if (has(IBV_QP_PKEY_INDEX)) abi.pkey_index = attr.pkey_index;
  if (has(IBV_QP_PORT)) abi.port = attr.port_num;
  if (has(IBV_QP_QKEY)) abi.qkey = attr.qkey;
  if (has(IBV_QP_AV)) abi.ah = ToAbi(attr.ah_attr);
  if (has(IBV_QP_PATH_MTU)) abi.path_mtu = attr.path_mtu;
  if (has(IBV_QP_TIMEOUT)) abi.timeout = attr.timeout;
  if (has(IBV_QP_RETRY_CNT)) abi.retry_count = attr.retry_cnt;
  if (has(IBV_QP_RNR_RETRY)) abi.rnr_retry = attr.rnr_retry;
  if (has(IBV_QP_RQ_PSN)) abi.rq_psn = attr.rq_psn;
  if (has(IBV_QP_MAX_QP_RD_ATOMIC)) abi.max_rd_atomic = attr.max_rd_atomic;
  if (has(IBV_QP_ALT_PATH)) {
    abi.alt_ah = ToAbi(attr.alt_ah_attr);
    abi.alt_pkey_index = attr.alt_pkey_index;
    abi.alt_port = attr.alt_port_num;
    abi.alt_timeout = attr.alt_timeout;
  }
  if (has(IBV_QP_MIN_RNR_TIMER)) abi.min_rnr_timer = attr.min_rnr_timer;
  if (has(IBV_QP_SQ_PSN)) abi.sq_psn = attr.sq_psn;
  if (has(IBV_QP_MAX_DEST_RD_ATOMIC)) abi.max_dest_rd_atomic = attr.max_dest_rd_atomic;
  if (has(IBV_QP_PATH_MIG_STATE)) abi.path_mig_state = attr.path_mig_state;
  if (has(IBV_QP_CAP)) {
    abi.max_send_wr = attr.cap.max_send_wr;
    abi.max_recv_wr = attr.cap.max_recv_wr;
    abi.max_send_sge = attr.cap.max_send_sge;
    abi.max_recv_sge = attr.cap.max_recv_sge;
    abi.max_inline = attr.cap.max_inline_data;
  }
  if (has(IBV_QP_DEST_QPN)) abi.dest_qpn = attr.dest_qp_num;
  if (has(IBV_QP_RATE_LIMIT)) abi.rate_limit_kbps = attr.rate_limit;
  return abi;
}

ibv_qp_attr FromAbi(const roci_abi_qp_attr& abi) {
  ibv_qp_attr attr = {};
  attr.qp_state = static_cast<ibv_qp_state>(abi.state);
  attr.cur_qp_state = static_cast<ibv_qp_state>(abi.cur_state);
  attr.path_mtu = static_cast<ibv_mtu>(abi.path_mtu);
  attr.path_mig_state = static_cast<ibv_mig_state>(abi.path_mig_state);
  attr.qkey = abi.qkey;
  attr.rq_psn = abi.rq_psn;
  attr.sq_psn = abi.sq_psn;
  attr.dest_qp_num = abi.dest_qpn;
  attr.qp_access_flags = abi.access_flags;
  attr.ah_attr = FromAbi(abi.ah);
  attr.alt_ah_attr = FromAbi(abi.alt_ah);
  attr.pkey_index = abi.pkey_index;
  attr.alt_pkey_index = abi.alt_pkey_index;
  attr.en_sqd_async_notify = abi.en_sqd_async_notify;
  attr.sq_draining = abi.sq_draining;
  attr.max_rd_atomic = abi.max_rd_atomic;
  attr.max_dest_rd_atomic = abi.max_dest_rd_atomic;
  attr.min_rnr_timer = abi.min_rnr_timer;
  attr.port_num = abi.port;
  attr.timeout = abi.timeout;
  attr.retry_cnt = abi.retry_count;
  attr.rnr_retry = abi.rnr_retry;
  attr.alt_port_num = abi.alt_port;
  attr.alt_timeout = abi.alt_timeout;
  attr.rate_limit = abi.rate_limit_kbps;
  return attr;
}

}  // namespace roci::provider
