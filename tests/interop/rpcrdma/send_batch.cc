#include "tests/interop/rpcrdma/send_batch.h"

namespace rpcrdma {

void SendBatch::Clear() {
  requests_.clear();
  sges_.clear();
}

ibv_send_wr& SendBatch::Add(ibv_wr_opcode opcode, std::span<const ibv_sge> sges) {
  ibv_send_wr& request = requests_.emplace_back();
  request.opcode = opcode;
  request.num_sge = static_cast<int>(sges.size());
  sges_.insert(sges_.end(), sges.begin(), sges.end());
  return request;
}

void SendBatch::AddRead(const ibv_sge& to, uint64_t remote, uint32_t rkey) {
  Add(IBV_WR_RDMA_READ, {&to, 1}).wr.rdma = {remote, rkey};
}

void SendBatch::AddWrite(const ibv_sge& from, uint64_t remote, uint32_t rkey) {
  Add(IBV_WR_RDMA_WRITE, {&from, 1}).wr.rdma = {remote, rkey};
}

void SendBatch::AddSend(std::span<const ibv_sge> from, uint32_t key_to_invalidate) {
  ibv_send_wr& request = Add(key_to_invalidate == 0 ? IBV_WR_SEND : IBV_WR_SEND_WITH_INV, from);
  if (key_to_invalidate != 0) request.invalidate_rkey = key_to_invalidate;
}

void SendBatch::AddBind(ibv_mw* window, uint32_t rkey, const ibv_mw_bind_info& range) {
  ibv_send_wr& request = Add(IBV_WR_BIND_MW, {});
  request.bind_mw.mw = window;
  request.bind_mw.rkey = rkey;
  request.bind_mw.bind_info = range;
}

void SendBatch::AddLocalInvalidate(uint32_t rkey) {
  ibv_send_wr& request = Add(IBV_WR_LOCAL_INV, {});
  request.invalidate_rkey = rkey;
  request.send_flags = IBV_SEND_FENCE;
}

int SendBatch::Post(ibv_qp* qp, uint64_t wr_id) {
  ibv_sge* sges = sges_.data();
  for (size_t i = 0; i < requests_.size(); ++i) {
    ibv_send_wr& request = requests_[i];
    request.wr_id = wr_id;
    request.sg_list = sges;
    sges += request.num_sge;
    request.next = i + 1 < requests_.size() ? &requests_[i + 1] : nullptr;
  }
  requests_.back().send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, requests_.data(), &bad);
}

}  // namespace rpcrdma
