// Posts a request of the random walk by the calls of an extended queue pair (ibv_wr_post(3)).
#include <vector>

#include "tests/integration/walk_end.h"

namespace roci::testing {
namespace {

constexpr uint64_t kDatagramCalls = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
constexpr uint64_t kUnreliableCalls =
    kDatagramCalls | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
constexpr uint64_t kReliableCalls =
    kUnreliableCalls | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
    IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;

uint64_t CallsOf(ibv_qp_type type) {
  if (type == IBV_QPT_UD) return kDatagramCalls;
  return type == IBV_QPT_UC ? kUnreliableCalls : kReliableCalls;
}

void PutOperation(ibv_qp_ex* qp, const ibv_send_wr& wr) {
  const auto& rdma = wr.wr.rdma;
  switch (wr.opcode) {
    case IBV_WR_SEND:
      return ibv_wr_send(qp);
    case IBV_WR_SEND_WITH_IMM:
      return ibv_wr_send_imm(qp, wr.imm_data);
    case IBV_WR_SEND_WITH_INV:
      return ibv_wr_send_inv(qp, wr.invalidate_rkey);
    case IBV_WR_RDMA_WRITE:
      return ibv_wr_rdma_write(qp, rdma.rkey, rdma.remote_addr);
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return ibv_wr_rdma_write_imm(qp, rdma.rkey, rdma.remote_addr, wr.imm_data);
    case IBV_WR_RDMA_READ:
      return ibv_wr_rdma_read(qp, rdma.rkey, rdma.remote_addr);
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return ibv_wr_atomic_fetch_add(qp, wr.wr.atomic.rkey, wr.wr.atomic.remote_addr,
                                     wr.wr.atomic.compare_add);
    case IBV_WR_LOCAL_INV:
      return ibv_wr_local_inv(qp, wr.invalidate_rkey);
    case IBV_WR_BIND_MW:
      return ibv_wr_bind_mw(qp, wr.bind_mw.mw, wr.bind_mw.rkey, &wr.bind_mw.bind_info);
    default:
      return;
  }
}

// One element or piece, or several.
void PutData(ibv_qp_ex* qp, const ibv_send_wr& wr) {
  const auto count = static_cast<size_t>(wr.num_sge);
  if ((wr.send_flags & IBV_SEND_INLINE) != 0) {
    std::vector<ibv_data_buf> pieces(count);
    for (size_t i = 0; i < count; ++i) {
      pieces[i] = {reinterpret_cast<void*>(wr.sg_list[i].addr), wr.sg_list[i].length};
    }
    if (count == 1) return ibv_wr_set_inline_data(qp, pieces[0].addr, pieces[0].length);
    return ibv_wr_set_inline_data_list(qp, count, pieces.data());
  }
  if (count == 1) {
    const ibv_sge& sge = wr.sg_list[0];
    return ibv_wr_set_sge(qp, sge.lkey, sge.addr, sge.length);
  }
  if (count != 0) ibv_wr_set_sge_list(qp, count, wr.sg_list);
}

}  // namespace

bool WalkEnd::Create(ibv_qp_init_attr& init, bool extended) {
  if (extended) {
    ibv_qp_init_attr_ex more = {};
    more.send_cq = init.send_cq;
    more.recv_cq = init.recv_cq;
    more.srq = init.srq;
    more.cap = init.cap;
    more.qp_type = type;
    more.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    more.pd = pd;
    more.send_ops_flags = CallsOf(type);
    qp = ibv_create_qp_ex(device->context, &more);
    init.cap = more.cap;
    if (qp != nullptr) qpx = ibv_qp_to_qp_ex(qp);
  } else {
    qp = ibv_create_qp(pd, &init);
  }
  max_inline = init.cap.max_inline_data;
  return qp != nullptr && (qpx != nullptr) == extended;
}

void WalkEnd::PutExtended(const ibv_send_wr& wr) {
  qpx->wr_id = wr.wr_id;
  qpx->wr_flags = wr.send_flags & ~unsigned{IBV_SEND_INLINE};
  PutOperation(qpx, wr);
  if (type == IBV_QPT_UD) {
    ibv_wr_set_ud_addr(qpx, wr.wr.ud.ah, wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey);
  }
  if (type == IBV_QPT_XRC_SEND) ibv_wr_set_xrc_srqn(qpx, wr.qp_type.xrc.remote_srqn);
  PutData(qpx, wr);
}

int WalkEnd::PostExtended(const ibv_send_wr& wr) {
  ibv_wr_start(qpx);
  PutExtended(wr);
  return ibv_wr_complete(qpx);
}

}  // namespace roci::testing
