#include "tests/integration/verbs_datagram.h"

#include <arpa/inet.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace roci::testing {
namespace {

void Require(bool condition, const char* what) {
  if (condition) return;
  std::perror(what);
  std::abort();
}

void ToRts(ibv_qp* qp) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = kQkey;
  int error =
      ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  attr.qp_state = IBV_QPS_RTR;
  if (error == 0) error = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
  attr.qp_state = IBV_QPS_RTS;
  if (error == 0) error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN);
  Require(error == 0, "UD queue pair to RTS");
}

}  // namespace

ibv_gid GidOf(const char* ip) {
  ibv_gid gid = {};
  if (strchr(ip, ':') != nullptr) {
    Require(inet_pton(AF_INET6, ip, gid.raw) == 1, ip);
  } else {
    gid.raw[10] = gid.raw[11] = 0xFF;
    Require(inet_pton(AF_INET, ip, gid.raw + 12) == 1, ip);
  }
  return gid;
}

GidChoice FindGid(OpenDevice& device, bool ipv4) {
  const ibv_gid mapped = GidOf("0.0.0.0");
  for (int i = 0; i < device.port.gid_tbl_len; ++i) {
    ibv_gid gid;
    Require(ibv_query_gid(device.context, 1, i, &gid) == 0, "ibv_query_gid");
    if ((memcmp(gid.raw, mapped.raw, 12) == 0) == ipv4) return {gid, static_cast<uint8_t>(i)};
  }
  std::abort();
}

DatagramEndpoint::DatagramEndpoint(OpenDevice& d, uint32_t create_flags, uint32_t max_wr)
    : device(d) {
  cq = ibv_create_cq(device.context, static_cast<int>(2 * max_wr), nullptr, nullptr, 0);
  Require(cq != nullptr, "ibv_create_cq");
  ibv_qp_init_attr_ex init = {};
  init.send_cq = cq;
  init.recv_cq = cq;
  init.cap.max_send_wr = max_wr;
  init.cap.max_recv_wr = max_wr;
  init.cap.max_send_sge = 4;
  init.cap.max_recv_sge = 4;
  init.qp_type = IBV_QPT_UD;
  init.sq_sig_all = 1;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS;
  init.pd = device.pd;
  init.create_flags = create_flags;
  qp = ibv_create_qp_ex(device.context, &init);
  Require(qp != nullptr, "ibv_create_qp_ex");
  ToRts(qp);
}

DatagramEndpoint::~DatagramEndpoint() {
  Require(ibv_destroy_qp(qp) == 0, "ibv_destroy_qp");
  Require(ibv_destroy_cq(cq) == 0, "ibv_destroy_cq");
}

ibv_ah* DatagramEndpoint::CreateAh(const ibv_gid& destination, uint8_t sgid_index) {
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = destination;
  attr.grh.sgid_index = sgid_index;
  attr.grh.hop_limit = 5;
  return ibv_create_ah(device.pd, &attr);
}

int DatagramEndpoint::PostSend(ibv_ah* ah, uint32_t remote_qpn, ibv_sge sge, uint32_t qkey,
                               uint64_t wr_id) {
  ibv_send_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = remote_qpn;
  wr.wr.ud.remote_qkey = qkey;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

}  // namespace roci::testing
